// What does `catena networks` do?

import { findHighestCommon, listPluginVersions } from '../../chain/config/plugin-version.ts';
import { defined } from '../../cni/json.ts';
import { SPEC_VERSIONS } from '../../cni/result.ts';
import { renderTable } from '../../lab/words.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { findList } from '../named-list.ts';
import { printAnswer } from '../output/print.ts';
import { findMismatches, readConfigured } from '../runtimes/configured.ts';
import { type Candidate, type Choice, choicesOf, readCandidates, type Settings } from '../runtimes/rules.ts';
import { confDirOf, runtimeOf } from '../target.ts';
import { widthOf } from '../terminal/lines.ts';

/** Shows every file of the configuration directory, which of them each runtime uses, and with `--why` the reasons. */
export async function run(call: CommandCall): Promise<number> {
  const versionsOf = call.text('versions');
  if (versionsOf !== undefined) return showVersions(call, versionsOf);
  const dir = confDirOf(call);
  const configured = readConfigured(call.text('etc') || '/etc');
  const given = settingsOf(call);
  const notes = findMismatches(configured, dir, undefined);
  const candidates = await readCandidates(dir, call.on('files-only') ? undefined : runtimeOf(call));
  const choices = choicesOf(candidates, configured, given);
  const noted = notes.map(note => `note: ${note}\n`).join('');
  const text = (why: boolean) => `${render(dir, candidates, choices, why)}${noted}`;
  await printAnswer(call, 'NetworkFiles', toJson(dir, candidates, choices, notes), {
    text: () => text(call.on('why')),
    wide: () => text(true),
    names: () => candidates.flatMap(({ list }) => list?.name ?? []),
  });
  return 0;
}

function settingsOf(call: CommandCall): Settings {
  const [max, defaultNetwork] = [call.text('max-conf-num'), call.text('default-network')];
  if (max !== undefined && !/^\d{1,6}$/.test(max)) {
    throw new UsageError(`Cannot use --max-conf-num "${max}": expected a number of files, 0 for all`);
  }
  return defined({ maxConfNum: max === undefined ? undefined : Number(max), defaultNetwork });
}

function render(
  dir: string,
  candidates: readonly Candidate[],
  choices: readonly Choice[],
  why: boolean,
): string {
  const width = (texts: readonly string[]) => Math.max(0, ...texts.map(text => text.length));
  const names = width(candidates.map(({ name }) => name));
  const runtimes = width(choices.map(({ runtime }) => runtime));
  const lines = [`${dir}${candidates.length ? '' : ' is empty, or does not exist'}`];
  for (const candidate of candidates) {
    lines.push(`  ${candidate.name.padEnd(names)}  ${describe(candidate)}`);
    if (!why || candidate.ignored) continue;
    for (const { runtime, verdicts } of choices) {
      const verdict = verdicts.find(({ file }) => file === candidate.name);
      if (!verdict) continue;
      const word = verdict.used ? 'used' : 'not used';
      lines.push(`    ${runtime.padEnd(runtimes)}  ${word.padEnd(8)}  ${verdict.why}`);
    }
  }
  lines.push('');
  for (const { runtime, files, problem } of choices) {
    const taken = files.join(', ') || 'none';
    lines.push(`${runtime.padEnd(runtimes)}  ${taken}${problem === undefined ? '' : `: ${problem}`}`);
  }
  return `${lines.join('\n')}\n`;
}

function describe({ ignored, list, broken, unusable, nameless }: Candidate): string {
  if (ignored !== undefined) return `ignored: ${ignored}`;
  if (broken !== undefined) return `broken: ${broken}`;
  const types = list?.plugins.map(({ type }) => type).join(', ');
  const network = nameless ? 'a network without a name' : `network ${list?.name}`;
  const what = list && `${network}, CNI ${list.version}: ${types}`;
  return [what, unusable && `not usable: ${unusable}`].filter(Boolean).join('; ');
}

function toJson(
  dir: string,
  candidates: readonly Candidate[],
  choices: readonly Choice[],
  notes: readonly string[],
): AnswerOf<'NetworkFiles'> {
  return {
    confDir: dir,
    files: candidates.map(({ list, extension: _, ...file }) => ({
      ...file,
      ...defined({ network: list?.name, cniVersion: list?.version }),
      ...defined({ plugins: list?.plugins.map(({ type }) => type) }),
    })),
    runtimes: choices,
    notes,
  };
}

/** Prints which versions each plugin of a network supports; fails if one does not support that of the list. */
async function showVersions(call: CommandCall, what: string): Promise<number> {
  const { list } = findList(call, what);
  const { name, version } = list;
  const plugins = await listPluginVersions(list, runtimeOf(call));
  const usable = plugins.every(({ supportedVersions }) => supportedVersions.includes(version));
  const highestCommon = findHighestCommon(plugins) ?? null;
  const shown = { network: name, cniVersion: version, usable, highestCommon, plugins };
  const common =
    highestCommon === null
      ? 'they have no version in common'
      : `the highest version of all is ${highestCommon}`;
  const words = `which ${usable ? 'every' : 'not every'} plugin supports; ${common}`;
  const rows = plugins.map(({ type, supportedVersions }) => [
    type,
    ...SPEC_VERSIONS.map(one => (supportedVersions.includes(one) ? one : '-')),
  ]);
  const text = () => `network ${name}, CNI ${version}, ${words}\n${renderTable(rows, widthOf(call))}`;
  await printAnswer(call, 'NetworkVersions', shown, text);
  return usable ? 0 : 1;
}
