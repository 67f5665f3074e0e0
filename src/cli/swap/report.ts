// What is known before a swap, does the user want it, how is it reported, and is CHECK the same after it as before?
import { lstatSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { isatty } from 'node:tty';
import type { Conflist } from '../../chain/config/conflist.ts';
import { findPlugin } from '../../chain/config/find-plugin.ts';
import { listNetworks } from '../../chain/config/load.ts';
import { listUses } from '../../chain/config/plugin-uses.ts';
import { defined } from '../../cni/json.ts';
import { absolutePath } from '../../files/read-file.ts';
import type { AttachmentCheck } from '../../watch/examine.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { findDigest, listSwaps } from '../install/swap.ts';
import { noteDone } from '../log/events.ts';
import { isData } from '../output/format.ts';
import { printAnswer } from '../output/print.ts';
import { confDirOf } from '../target.ts';

/** What is known about the executable that a network calls for a plugin type. */
export type Survey = AnswerOf<'SurveyList'>['items'][number];

/** @throws CniError if the executable does not exist */
export function survey(
  call: CommandCall,
  list: Conflist,
  type: string,
  pluginDirs: readonly string[],
): Survey {
  const target = findPlugin(type, pluginDirs);
  const others = listNetworks(confDirOf(call)).networks.map(one => one.list);
  const lists = [list, ...others.filter(({ name }) => name !== list.name)];
  return {
    link: type,
    target,
    digest: findDigest(target) ?? '',
    hidden: pluginDirs.map(dir => resolve(dir, type)).filter(path => path !== target && isFile(path)),
    otherNames: listOtherNames(target),
    calledBy: lists.flatMap(({ name, plugins }) =>
      listUses({ plugins })
        .filter(use => use.type === type)
        .map(({ index, as }) => ({ network: name, index, as })),
    ),
    swaps: listSwaps(target),
  };
}

/**
 * The file that contains a conflist; the examinations read it again.
 * @throws UsageError if no file contains it
 */
export function findListFile(call: CommandCall, network: string): string {
  const file = call.text('file');
  if (file !== undefined) return absolutePath(file, call.cwd);
  const dir = absolutePath(confDirOf(call), call.cwd);
  const found = listNetworks(dir).networks.find(({ list }) => list.name === network);
  if (found !== undefined) return resolve(dir, found.file);
  throw new UsageError('Cannot swap: name the file of the list with --file <conflist>');
}

/** The survey as text, one fact per line. */
export function renderSurvey({ link, target, digest, calledBy, ...known }: Survey): string {
  const uses = calledBy.map(
    ({ network, index, as }) => `${network} ${index}${as === 'link' ? '' : ` (${as})`}`,
  );
  const rows: [string, readonly string[]][] = [
    ['in place', [`${target} (${shortDigest(digest)})`]],
    ['called by', [uses.join(', ')]],
    ['never called', known.hidden.map(path => `${path}: it comes later in CNI_PATH`)],
    ['same file', known.otherNames.length ? [`${known.otherNames.join(', ')}: they are not changed`] : []],
    ['to undo', known.swaps.map(({ time, from }) => `${time} ${from}`)],
  ];
  const lines = rows.flatMap(([name, values]) => values.map(value => `  ${name.padEnd(12)}  ${value}`));
  return `link ${link}\n${lines.join('\n')}\n`;
}

/** Enough of a digest to tell two files apart by eye. */
export function shortDigest(digest: string): string {
  return `sha256 ${digest.slice(0, 12)}`;
}

function listOtherNames(target: string): string[] {
  const own = lstatSync(target);
  if (!own.isFile() || own.nlink < 2) return [];
  const isOwn = (name: string) => {
    const stat = lstatSync(join(dirname(target), name), { throwIfNoEntry: false });
    return name !== basename(target) && stat?.dev === own.dev && stat.ino === own.ino;
  };
  return readdirSync(dirname(target)).filter(isOwn).sort();
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

/** Everything that `--json` prints. */
export type SwapReport = AnswerOf<'Replacement'>;

/** Prints text for people, unless the command prints JSON. */
export function tell(call: CommandCall, text: string): void {
  if (!isData(call)) call.out(text);
}

/**
 * Prints the last line, or the whole report as JSON. @returns the exit code: 0 if the node is, or would be, in the requested
 * state
 */
export async function conclude(
  call: CommandCall,
  report: Omit<SwapReport, 'why'> & { readonly why?: string | undefined },
): Promise<number> {
  const { outcome, why, ...seen } = report;
  const { target, candidate, worse } = seen;
  if (outcome === 'swapped' || outcome === 'undone' || outcome === 'put back') {
    const what = `"${target}": ${outcome}${candidate === undefined ? '' : `, candidate "${candidate}"`}`;
    noteDone(call, 'SWAP', `${what}${why === undefined ? '' : `: ${why}`}`);
  }
  const answer = { outcome, ...defined({ why }), ...seen };
  const text = () => `${outcome}${why === undefined ? '' : `: ${why}`}\n`;
  await printAnswer(call, 'Replacement', answer, text);
  return ['refused', 'declined', 'put back'].includes(outcome) || worse?.length ? 1 : 0;
}

/** Attachments that passed before and fail now. */
export function findWorse(
  before: readonly AttachmentCheck[],
  after: readonly AttachmentCheck[],
): AttachmentCheck[] {
  const key = ({ network, containerId, ifname }: AttachmentCheck) => `${network}\n${containerId}\n${ifname}`;
  const sound = new Set(before.filter(({ state }) => state === 'sound').map(key));
  return after.filter(one => one.state === 'broken' && sound.has(key(one)));
}

/** The number of attachments in each state, and what is wrong with the broken ones. */
export function renderChecked(checked: readonly AttachmentCheck[]): string {
  const number = (state: AttachmentCheck['state']) => checked.filter(one => one.state === state).length;
  const unknown = number('unknown') ? `, ${number('unknown')} cannot be checked` : '';
  const broken = checked.filter(({ state }) => state === 'broken');
  return `CHECK: ${number('sound')} pass, ${broken.length} fail${unknown}\n${renderBroken(broken)}`;
}

/** One line per attachment. */
export function renderBroken(checked: readonly AttachmentCheck[]): string {
  return checked
    .map(({ network, containerId, ifname, problem }) => `  ${network} ${containerId} ${ifname}: ${problem}\n`)
    .join('');
}

/**
 * Asks the user on a terminal. Without one, the command line decides.
 * @param doubt a reason why only a person may confirm
 */
export async function confirm(call: CommandCall, doubt?: string): Promise<'yes' | 'no' | 'doubt'> {
  if (call.on('yes') || isData(call) || !isatty(0) || !isatty(1))
    return doubt === undefined ? 'yes' : 'doubt';
  const asking = createInterface({ input: process.stdin, output: process.stdout, terminal: false });
  const question = doubt === undefined ? 'continue?' : 'it behaves differently, as shown above: continue?';
  try {
    const answer = await asking.question(`${question} [y/N] `, { signal: call.signal });
    return /^y(es)?$/i.test(answer.trim()) ? 'yes' : 'no';
  } catch {
    // Ended, or the terminal was closed.
    return 'no';
  } finally {
    asking.close();
  }
}
