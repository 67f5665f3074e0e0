// What does `catena swap` do?
import { accessSync, constants, realpathSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type Conflist, listUses } from '../../chain/config/conflist.ts';
import { programOf } from '../../chain/config/find-plugin.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { CORE_NAME } from '../../cni/directories.ts';
import { absolutePath } from '../../files/read-file.ts';
import { findType, readSwap } from '../../lab/compare/executables.ts';
import { countMatter } from '../../lab/compare/report.ts';
import { count } from '../../lab/words.ts';
import { readRecords } from '../../node/facts.ts';
import { type AttachmentCheck, checkAll } from '../../watch/examine.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { findDigest, nextKept, planUndo, putSwap, undoSwap, type WantedSwap } from '../install/swap.ts';
import { printList } from '../output/print.ts';
import {
  compareBoth,
  conclude,
  confirm,
  type Examined,
  examineRules,
  findListFile,
  findUndeletable,
  findUndoProblem,
  findWorse,
  renderBroken,
  renderChecked,
  renderComparison,
  renderRules,
  renderSurvey,
  type Survey,
  type SwapReport,
  shortDigest,
  survey,
  tell,
  withCopy,
} from '../swap.ts';
import { loadTarget, runtimeOf } from '../target.ts';
import { openProgress } from '../terminal/progress.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/** Shows which executables a network calls, replaces one of them, or restores the previous one. */
export async function run(call: CommandCall): Promise<number> {
  const [to, plugin, undo] = [call.text('to'), call.text('link'), call.on('undo')];
  if (to !== undefined && undo) throw new UsageError('Cannot use both --to and --undo');
  const list = loadTarget(call);
  const runtime = runtimeOf(call);
  if (to === undefined && !undo) return await show(call, list, plugin, runtime);
  if (plugin === undefined) throw new UsageError('Cannot swap: --link <type or index> is missing');
  const known = survey(call, list, findType(list, plugin), runtime.pluginDirs);
  const facts = { network: list.name, ...known };
  return to === undefined ? await undoLast(call, facts, runtime) : await swap(call, list, to, facts, runtime);
}

type Facts = Survey & Pick<SwapReport, 'network'>;

async function show(
  call: CommandCall,
  list: Conflist,
  plugin: string | undefined,
  runtime: Runtime,
): Promise<number> {
  const all = [...new Set(listUses(list).map(({ type }) => type))];
  const types = plugin === undefined ? all : [findType(list, plugin)];
  const known = types.map(type => survey(call, list, type, runtime.pluginDirs));
  await printList(call, 'SurveyList', known, () => known.map(renderSurvey).join(''));
  return 0;
}

async function swap(
  call: CommandCall,
  list: Conflist,
  to: string,
  facts: Facts,
  runtime: Runtime,
): Promise<number> {
  const { link: type, target, digest } = facts;
  const file = findListFile(call, list.name);
  const given = realpathSync(findIn(readSwap(list, absolutePath(to, call.cwd), type).target, type));
  // A front would not find its program in another directory, and the program behaves by its name as well.
  const candidate = programOf(given);
  const after = findDigest(candidate);
  if (after === undefined) throw new UsageError(`Cannot swap: "${to}" is not an executable`);
  const found = { ...facts, candidate };
  if (after === digest || after === findDigest(programOf(target)))
    return conclude(call, { ...found, outcome: 'same', why: `${target} is already that file` });
  if (!call.on('dry-run')) refuseReadOnly(target);
  tell(call, `network ${list.name}, ${renderSurvey(facts)}`);
  tell(call, `  ${'candidate'.padEnd(12)}  ${candidate} (${shortDigest(after)})\n\n`);
  const pluginDirs = runtime.pluginDirs.map(dir => absolutePath(dir, call.cwd));
  return await withCopy(candidate, type, async copy => {
    const seen = await examine({ copy, type, list, file, pluginDirs }, call);
    const put = hasProgram(dirname(target), after)
      ? { candidate: given, after: findDigest(given) ?? after }
      : { candidate: copy, after };
    const wanted = { target, from: given, before: digest, ...put };
    return await swapExamined(call, wanted, { ...found, ...seen }, runtime);
  });
}

/** Whether the directory has our Bun program with this digest, so that a front works there. */
function hasProgram(dir: string, digest: string): boolean {
  return findDigest(join(dir, CORE_NAME)) === digest;
}

/** A directory stands for the file of that name in it. */
function findIn(path: string, type: string): string {
  return statSync(path).isDirectory() ? join(path, type) : path;
}

interface Seen {
  readonly conformance: AnswerOf<'Conformance'>;
  readonly comparison: AnswerOf<'Comparison'>;
}

async function swapExamined(
  call: CommandCall,
  wanted: WantedSwap,
  found: Facts & Seen,
  runtime: Runtime,
): Promise<number> {
  const { link: type, target } = found;
  const before = await checkOf(type, runtime);
  tell(call, `\n${renderChecked(before)}`);
  const end = (outcome: SwapReport['outcome'], more: Partial<SwapReport> = {}) =>
    conclude(call, { ...found, before, ...more, outcome });
  const { obstacle, doubt } = judge(found, call);
  if (obstacle !== undefined) return end('refused', { why: obstacle });
  const undeletable = call.on('force')
    ? undefined
    : await findUndeletable(found, wanted.from ?? wanted.candidate, found.comparison, before, call);
  if (undeletable !== undefined) return end('refused', { why: undeletable });
  tell(call, renderPlan(target, before));
  if (call.on('dry-run')) return doubt === undefined ? end('planned') : end('refused', { why: doubt });
  const answer = await confirm(call, doubt);
  if (answer !== 'yes') return answer === 'no' ? end('declined') : end('refused', { why: doubt });

  putSwap(wanted, TOOL_VERSION);
  tell(call, `renamed: ${target} is the candidate\n`);
  const { worse, why } = await verify(type, before, runtime, call);
  if (why === undefined) return end('swapped', { worse });
  if (call.on('keep')) return end('swapped', { worse, why });
  undoSwap(target, true, TOOL_VERSION);
  return end('put back', { worse, why });
}

async function undoLast(call: CommandCall, facts: Facts, runtime: Runtime): Promise<number> {
  const { link: type, target } = facts;
  const { swap: last, how } = planUndo(target, call.on('force'));
  tell(call, `network ${facts.network}, ${renderSurvey(facts)}`);
  const why =
    how === 'in place'
      ? 'the swap, or another undo, was interrupted: the old executable is in place'
      : undefined;
  if (!call.on('dry-run')) refuseReadOnly(target);
  const problem =
    call.on('force') || how === 'in place' ? undefined : await findUndoProblem(facts, last.before, call);
  if (problem !== undefined) return conclude(call, { ...facts, outcome: 'refused', why: problem });
  const before = await checkOf(type, runtime);
  tell(call, `\n${renderChecked(before)}plan: restore the executable from before ${last.time} by rename\n`);
  if (call.on('dry-run')) return conclude(call, { ...facts, before, outcome: 'planned', why });
  if ((await confirm(call)) === 'no') return conclude(call, { ...facts, before, outcome: 'declined' });
  undoSwap(target, call.on('force'), TOOL_VERSION);
  const { worse, why: broken } = await verify(type, before, runtime, call);
  return conclude(call, { ...facts, before, worse, outcome: 'undone', why: broken ?? why });
}

/** Runs before the examinations, which take minutes: the directory may be on a read-only file system. */
function refuseReadOnly(target: string): void {
  try {
    accessSync(dirname(target), constants.W_OK);
  } catch (cause) {
    throw new Error(`Cannot swap "${target}": ${(cause as Error).message}`, { cause });
  }
}

async function examine(examined: Examined, call: CommandCall): Promise<Seen> {
  // In parallel, but waiting for both: neither may continue after the other one's failure was reported.
  const progress = openProgress(call, 'swap');
  progress.step('conformance and comparison of the candidate');
  const [rules, both] = await Promise.allSettled([examineRules(examined, call), compareBoth(examined, call)]);
  progress.end();
  if (rules.status === 'rejected') throw rules.reason;
  if (both.status === 'rejected') throw both.reason;
  const [conformance, comparison] = [rules.value, both.value];
  tell(
    call,
    `conformance: ${renderRules(conformance)}\ncomparison of ${renderComparison(comparison, examined)}`,
  );
  return { conformance, comparison };
}

function renderPlan(target: string, before: readonly AttachmentCheck[]): string {
  const sound = before.filter(({ state }) => state === 'sound').length;
  return [
    `plan: 1 ${target} is kept as ${nextKept(target)}`,
    `      2 a copy of the candidate is renamed to ${target}`,
    `      3 CHECK runs again for all: if one of ${count(sound, 'attachment')} that pass now fails, the old executable is restored`,
    '',
  ].join('\n');
}

/** An obstacle forbids the swap; a doubt needs the user's decision. */
function judge({ conformance, comparison }: Seen, call: CommandCall): { obstacle?: string; doubt?: string } {
  if (call.on('force')) return {};
  if (!conformance.ok) return { obstacle: 'it breaks mandatory rules; --force swaps anyway' };
  if (comparison.failing.length)
    return {
      obstacle:
        'the network does not work in temporary namespaces, see catena try; --force swaps without this test',
    };
  const matter = countMatter(comparison);
  if (matter === 0 || call.on('accept-differences')) return {};
  const found = count(matter, 'difference');
  return {
    doubt: `it behaves differently (${found}): use --ignore for what is intended, or --accept-differences`,
  };
}

function checkOf(type: string, runtime: Runtime): Promise<AttachmentCheck[]> {
  return checkAll(readRecords(runtime).standing, runtime, { type });
}

/** Attachments whose CHECK is worse than before; `why` is a summary in one line. */
async function verify(
  type: string,
  before: readonly AttachmentCheck[],
  runtime: Runtime,
  call: CommandCall,
): Promise<{ worse: AttachmentCheck[]; why?: string }> {
  const after = await checkOf(type, runtime);
  const worse = findWorse(before, after);
  tell(call, `CHECK: ${count(worse.length, 'attachment')} worse than before\n${renderBroken(worse)}`);
  if (call.signal.aborted)
    return { worse, why: 'the command was interrupted before all attachments were checked' };
  return worse.length ? { worse, why: 'CHECK fails where it passed before' } : { worse };
}
