// What does `catena swap` do: may a candidate replace an executable, does the user want it, and what became of it?
import {
  accessSync,
  chmodSync,
  constants,
  copyFileSync,
  lstatSync,
  readdirSync,
  realpathSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { isatty } from 'node:tty';
import { type Conflist, listUses } from '../../chain/config/conflist.ts';
import { findPlugin, programOf } from '../../chain/config/find-plugin.ts';
import { FRONT } from '../../chain/config/front-program.ts';
import { listNetworks } from '../../chain/config/load.ts';
import { pluginVersion } from '../../chain/config/plugin-version.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { visitAll } from '../../chain/run/visits.ts';
import { keyOf } from '../../cni/attachment.ts';
import { CORE_NAME } from '../../cni/directories.ts';
import { defined } from '../../cni/json.ts';
import { isWriterRunning, writerName } from '../../files/put-file.ts';
import { absolutePath } from '../../files/read-file.ts';
import { type CompareReport, countMatter, renderSummary } from '../../lab/compare/report.ts';
import { DELETED_BY_B, findType, readSwap } from '../../lab/compare/scene.ts';
import { renderVerdict } from '../../lab/conformance/examine.ts';
import { runOwnCommand } from '../../lab/reexec.ts';
import { count } from '../../lab/words.ts';
import { readRecords } from '../../node/facts.ts';
import { handOverOne, listAttached } from '../../node/handover/hand-over.ts';
import { type AttachmentCheck, checkAll } from '../../watch/examine.ts';
import { outOfEnvelope } from '../answers/envelope.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, pathOf, UsageError } from '../command.ts';
import { handoverRuntime, isFile, withPluginDir } from '../handover/hand-over-all.ts';
import {
  findDigest,
  listSwaps,
  nextKept,
  placeOf,
  planUndo,
  putSwap,
  undoSwap,
  type WantedSwap,
} from '../install/swap.ts';
import { noteDone } from '../log/events.ts';
import { isData } from '../output/format.ts';
import { printAnswer, printList } from '../output/print.ts';
import { confDirOf, loadTarget, runtimeOf } from '../target.ts';
import { foldText, widthOf } from '../terminal/lines.ts';
import { openProgress } from '../terminal/progress.ts';

/** Shows which executables a network calls, replaces one of them, or restores the previous one. */
export async function run(call: CommandCall): Promise<number> {
  const [to, plugin, undo] = [call.text('to'), call.text('plugin'), call.on('undo')];
  const list = loadTarget(call);
  const runtime = runtimeOf(call);
  if (to === undefined && !undo) {
    const all = [...new Set(listUses(list).map(({ type }) => type))];
    const types = plugin === undefined ? all : [findType(list, plugin)];
    const known = types.map(type => survey(call, list, type, runtime.pluginDirs));
    await printList(call, 'SurveyList', known, () => known.map(renderSurvey).join(''));
    return 0;
  }
  if (plugin === undefined) throw new UsageError('Cannot swap: --plugin <type or index> is missing');
  const known = survey(call, list, findType(list, plugin), runtime.pluginDirs);
  const job = { call, list, runtime, facts: { network: list.name, ...known } };
  return to === undefined ? await undoLast(job) : await swap(job, to);
}

/** What was asked for, and what is known about the executable in place. */
interface Job {
  readonly call: CommandCall;
  readonly list: Conflist;
  readonly runtime: Runtime;
  readonly facts: Survey & Pick<SwapReport, 'network'>;
}

async function swap(job: Job, to: string): Promise<number> {
  const { call, list, runtime, facts } = job;
  const { type, target, digest } = facts;
  const file = findListFile(call, list.name);
  const path = readSwap(list, absolutePath(to, call.cwd), type).target;
  const given = realpathSync(statSync(path).isDirectory() ? join(path, type) : path);
  // A front would not find its program in another directory, and the program behaves by its name as well.
  const candidate = programOf(given);
  const after = findDigest(candidate);
  if (after === undefined) throw new UsageError(`Cannot swap: "${to}" is not an executable`);
  if (after === digest || after === findDigest(programOf(target)))
    return conclude(call, { ...facts, candidate, outcome: 'same', why: `${target} is already that file` });
  if (!call.on('dry-run')) refuseReadOnly(target);
  tell(call, `network ${list.name}, ${renderSurvey(facts)}`);
  tell(call, `  ${'candidate'.padEnd(12)}  ${candidate} (${shortDigest(after)})\n\n`);
  const pluginDirs = runtime.pluginDirs.map(dir => absolutePath(dir, call.cwd));
  return await withCopy(candidate, type, async copy => {
    const seen = await examine({ copy, type, list, file, pluginDirs }, call);
    // With our Bun program beside it, a front works there.
    const put =
      findDigest(join(dirname(target), CORE_NAME)) === after
        ? { candidate: given, after: findDigest(given) ?? after }
        : { candidate: copy, after };
    const wanted = { target, from: given, before: digest, ...put };
    return await swapExamined(job, wanted, { candidate, ...seen });
  });
}

interface Seen {
  readonly conformance: AnswerOf<'Conformance'>;
  readonly comparison: AnswerOf<'Comparison'>;
}

async function swapExamined(
  job: Job,
  wanted: WantedSwap,
  seen: Seen & Pick<SwapReport, 'candidate'>,
): Promise<number> {
  const { call, facts } = job;
  const before = await checkNow(job);
  tell(call, `\n${renderChecked(before)}`);
  const end = (outcome: SwapReport['outcome'], more: Ending = {}) =>
    conclude(call, { ...facts, ...seen, before, ...more, outcome });
  const { obstacle = await findDeafness(job, seen), doubt } = judge(seen, call);
  if (obstacle !== undefined) return end('refused', { why: obstacle });
  const undeletable = call.on('force')
    ? undefined
    : await findUndeletable(job, wanted.from ?? wanted.candidate, seen.comparison, before);
  if (undeletable !== undefined) return end('refused', { why: undeletable });
  tell(call, renderPlan(facts.target, before));
  if (call.on('dry-run')) return doubt === undefined ? end('planned') : end('refused', { why: doubt });
  const answer = await confirm(call, doubt);
  if (answer !== 'yes') return answer === 'no' ? end('declined') : end('refused', { why: doubt });

  putSwap(wanted);
  tell(call, `renamed: ${facts.target} is the candidate\n`);
  const { worse, why } = await verify(job, before);
  if (why === undefined) return end('swapped', { worse });
  if (call.on('keep')) return end('swapped', { worse, why });
  undoSwap(facts.target, true);
  return end('put back', { worse, why });
}

async function undoLast(job: Job): Promise<number> {
  const { call, facts } = job;
  const { target } = facts;
  const force = call.on('force');
  const { swap: last, how } = planUndo(target, force);
  tell(call, `network ${facts.network}, ${renderSurvey(facts)}`);
  const isInPlace = how === 'in place';
  const why = isInPlace
    ? 'the swap, or another undo, was interrupted: the old executable is in place'
    : undefined;
  const end = (outcome: SwapReport['outcome'], more: Ending = {}) =>
    conclude(call, { ...facts, ...more, outcome });
  if (!call.on('dry-run')) refuseReadOnly(target);
  const problem =
    force || isInPlace
      ? undefined
      : ((await findUndoDeafness(job, last.kept)) ?? (await findUndoProblem(job, last.before)));
  if (problem !== undefined) return end('refused', { why: problem });
  const before = await checkNow(job);
  tell(call, `\n${renderChecked(before)}plan: restore the executable from before ${last.time} by rename\n`);
  if (call.on('dry-run')) return end('planned', { before, why });
  if ((await confirm(call)) === 'no') return end('declined', { before });
  undoSwap(target, force);
  const { worse, why: broken } = await verify(job, before);
  return end('undone', { before, worse, why: broken ?? why });
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
  const compared = renderSummary(
    comparison,
    examined.pluginDirs.join(':'),
    `the candidate for ${examined.type}`,
  );
  tell(call, `conformance: ${renderRules(conformance)}\ncomparison of ${compared}`);
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

/** Why another network could no longer call the plugin: the comparison plays one network, and CHECK asks what is attached. */
async function findDeafness(job: Job, { conformance }: Seen): Promise<string | undefined> {
  const { call, facts } = job;
  const { supportedVersions } = conformance;
  const lost = await findLost(job, otherLists(call, facts.network), supportedVersions);
  if (lost === undefined || call.on('force')) return undefined;
  return `it does not support the version of ${lost}, whose ADD would fail: the candidate lists ${supportedVersions.join(', ')}; --force swaps anyway`;
}

/** Like {@link findDeafness}, for the executable that an undo restores: a list may have got a newer version since the swap. */
async function findUndoDeafness(job: Job, kept: string): Promise<string | undefined> {
  const { call, list, runtime, facts } = job;
  const { type, target, network } = facts;
  const file = join(placeOf(target).dir, kept);
  // A plugin finds itself by its name, which a kept file has not.
  const ask = (copy: string) => pluginVersion(type, { ...runtime, pluginDirs: [dirname(copy)] });
  const restored = await withCopy(file, type, ask).catch(() => undefined);
  if (restored === undefined) return undefined;
  const { supportedVersions } = restored;
  const lost = await findLost(job, [list, ...otherLists(call, network)], supportedVersions);
  if (lost === undefined) return undefined;
  return `the previous executable does not support the version of ${lost}, whose ADD would fail: it lists ${supportedVersions.join(', ')}; --force undoes anyway`;
}

/** The networks among these that the executable in place supports, and one that lists these versions does not. */
async function findLost(
  { facts, runtime }: Job,
  lists: readonly Conflist[],
  supported: readonly string[],
): Promise<string | undefined> {
  const callers = lists.filter(({ name }) => facts.calledBy.some(({ network }) => network === name));
  const deaf = callers.filter(({ version }) => !supported.includes(version));
  if (deaf.length === 0) return undefined;
  // What the executable in place cannot do either is not lost.
  const inPlace = await pluginVersion(facts.type, runtime).catch(() => undefined);
  const lost = deaf.filter(({ version }) => inPlace?.supportedVersions.includes(version));
  return lost.length ? lost.map(({ name, version }) => `${name} (${version})`).join(', ') : undefined;
}

function checkNow({ facts, runtime }: Job): Promise<AttachmentCheck[]> {
  return checkAll(readRecords(runtime).standing, runtime, { type: facts.type });
}

/** Attachments whose CHECK is worse than before; `why` is a summary in one line. */
async function verify(
  job: Job,
  before: readonly AttachmentCheck[],
): Promise<{ worse: AttachmentCheck[]; why?: string }> {
  const { call } = job;
  const sound = new Set(before.filter(({ state }) => state === 'sound').map(keyOf));
  const worse = (await checkNow(job)).filter(one => one.state === 'broken' && sound.has(keyOf(one)));
  tell(call, `CHECK: ${count(worse.length, 'attachment')} worse than before\n${renderBroken(worse)}`);
  if (call.signal.aborted)
    return { worse, why: 'the command was interrupted before all attachments were checked' };
  return worse.length ? { worse, why: 'CHECK fails where it passed before' } : { worse };
}

/** What is known about the executable that a network calls for a plugin type. */
type Survey = AnswerOf<'SurveyList'>['items'][number];

/** @throws CniError if the executable does not exist */
function survey(call: CommandCall, list: Conflist, type: string, pluginDirs: readonly string[]): Survey {
  const target = findPlugin(type, pluginDirs);
  const lists = [list, ...otherLists(call, list.name)];
  return {
    type,
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

/** The lists of the node, but for one of this name. */
function otherLists(call: CommandCall, network: string): Conflist[] {
  const lists = listNetworks(confDirOf(call)).networks.map(one => one.list);
  return lists.filter(({ name }) => name !== network);
}

/**
 * The file that contains a conflist; the examinations read it again.
 * @throws UsageError if no file contains it
 */
function findListFile(call: CommandCall, network: string): string {
  const file = pathOf(call, 'file');
  if (file !== undefined) return file;
  const dir = absolutePath(confDirOf(call), call.cwd);
  const found = listNetworks(dir).networks.find(({ list }) => list.name === network);
  if (found !== undefined) return resolve(dir, found.file);
  throw new UsageError('Cannot swap: name the file of the list with --file <conflist>');
}

function renderSurvey({ type, target, digest, calledBy, ...known }: Survey): string {
  const uses = calledBy.map(
    ({ network, index, as }) => `${network} ${index}${as === 'plugin' ? '' : ` (${as})`}`,
  );
  const rows: [string, readonly string[]][] = [
    ['in place', [`${target} (${shortDigest(digest)})`]],
    ['called by', [uses.join(', ')]],
    ['never called', known.hidden.map(path => `${path}: it comes later in CNI_PATH`)],
    ['same file', known.otherNames.length ? [`${known.otherNames.join(', ')}: they are not changed`] : []],
    ['to undo', known.swaps.map(({ time, from }) => `${time} ${from}`)],
  ];
  const lines = rows.flatMap(([name, values]) => values.map(value => `  ${name.padEnd(12)}  ${value}`));
  return `plugin ${type}\n${lines.join('\n')}\n`;
}

/** Enough of a digest to tell two files apart by eye. */
function shortDigest(digest: string): string {
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

/** Everything that `--json` prints. */
type SwapReport = AnswerOf<'Replacement'>;

/** What an outcome adds to what was known before. */
type Ending = Pick<Partial<SwapReport>, 'before' | 'worse'> & { readonly why?: string | undefined };

/** Prints text for people with lines that fit the terminal, unless the command prints JSON. */
export function tell(call: CommandCall, text: string): void {
  if (!isData(call)) call.out(foldText(text, widthOf(call)));
}

/**
 * Prints the last line, or the whole report as JSON. @returns the exit code: 0 if the node is, or would be, in the requested
 * state
 */
async function conclude(
  call: CommandCall,
  report: Omit<SwapReport, 'why'> & Pick<Ending, 'why'>,
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

/** The number of attachments in each state, and what is wrong with the broken ones. */
function renderChecked(checked: readonly AttachmentCheck[]): string {
  const number = (state: AttachmentCheck['state']) => checked.filter(one => one.state === state).length;
  const unknown = number('unknown') ? `, ${number('unknown')} cannot be checked` : '';
  const broken = checked.filter(({ state }) => state === 'broken');
  return `CHECK: ${number('sound')} pass, ${broken.length} fail${unknown}\n${renderBroken(broken)}`;
}

function renderBroken(checked: readonly AttachmentCheck[]): string {
  return checked
    .map(({ network, containerId, ifname, problem }) => `  ${network} ${containerId} ${ifname}: ${problem}\n`)
    .join('');
}

/**
 * Asks the user on a terminal. Without one, the command line decides.
 * @param doubt a reason why only a person may confirm
 */
async function confirm(call: CommandCall, doubt?: string): Promise<'yes' | 'no' | 'doubt'> {
  // CHECK ends early then, and the outcome could not be verified either.
  if (call.signal.aborted) return 'no';
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

interface Examined {
  /** A copy of the candidate in a directory of its own, under the plugin's name. */
  readonly copy: string;
  readonly type: string;
  readonly list: Conflist;
  /** The file of the conflist. */
  readonly file: string;
  readonly pluginDirs: readonly string[];
}

/** Examines the candidate with `catena conformance`, using the conflist's configuration if the plugin is an entry of it. */
async function examineRules(examined: Examined, call: CommandCall): Promise<AnswerOf<'Conformance'>> {
  const { copy, type, list, file } = examined;
  const isEntry = list.plugins.some(entry => entry.type === type);
  const given = isEntry ? ['--from', file, ...capOf(call)] : [];
  return await ask('conformance', [copy, ...given, ...dirsOf(examined)], call);
}

/** Runs the conflist with both executables, with `catena compare`. */
async function compareBoth(examined: Examined, call: CommandCall): Promise<CompareReport> {
  const { copy, type, file } = examined;
  const scenes = call.texts('scene');
  // Existing attachments must stay deletable, so this scene is always played.
  const played = scenes.length ? [...new Set([...scenes, DELETED_BY_B])] : [];
  const chosen = [
    ...call.texts('ignore').flatMap(one => ['--ignore', one]),
    ...played.flatMap(one => ['--scene', one]),
  ];
  const args = ['--with', copy, '--plugin', type, file, ...dirsOf(examined), ...chosen, ...capOf(call)];
  return await ask('compare', args, call);
}

function renderRules(report: AnswerOf<'Conformance'>): string {
  const broken = report.rules.filter(({ outcome }) => outcome === 'broken');
  const lines = broken.map(({ level, id, title, details }) => {
    return `  ${level.padEnd(6)}  ${id}: ${title}${details === undefined ? '' : `; seen: ${details}`}\n`;
  });
  return `${renderVerdict(report)}${lines.join('')}`;
}

function dirsOf({ pluginDirs }: Examined): string[] {
  return pluginDirs.flatMap(dir => ['--bin-dir', dir]);
}

function capOf(call: CommandCall): string[] {
  const cap = call.text('cap');
  return cap === undefined ? [] : ['--cap', cap];
}

async function ask<Reply>(command: string, args: readonly string[], call: CommandCall): Promise<Reply> {
  const { stdout, problem } = await runOwnCommand([command, '--json', ...args], call);
  // With exit code 1 there is a verdict as well.
  if (stdout.startsWith('{')) return outOfEnvelope(JSON.parse(stdout)) as Reply;
  throw new Error(`Cannot examine with "catena ${command}": ${problem}`);
}

/**
 * Copies an executable into a directory of its own while the work runs. Multi-call executables behave according to their name,
 * and files next to the candidate will not be next to it once it is installed. Copies left by killed processes are deleted.
 */
async function withCopy<T>(candidate: string, name: string, work: (copy: string) => Promise<T>): Promise<T> {
  sweep();
  return await withPluginDir(`catena-swap-${writerName()}-`, async dir => {
    const copy = join(dir, name);
    copyFileSync(candidate, copy, constants.COPYFILE_FICLONE);
    chmodSync(copy, 0o755);
    return await work(copy);
  });
}

const NAME = /^catena-swap-(\d+-\d*-\d*)-/;

function sweep(): void {
  for (const name of readdirSync(tmpdir())) {
    const [, writer] = NAME.exec(name) ?? [];
    if (writer === undefined || isWriterRunning(writer) !== false) continue;
    const path = join(tmpdir(), name);
    // Other users can make a directory of that name, too, and what is below it change while it is removed.
    if (lstatSync(path, { throwIfNoEntry: false })?.uid === process.getuid?.())
      rmSync(path, { recursive: true, force: true });
  }
}

/**
 * Why a swap would leave attachments that nothing can delete; undefined if it would not. Attachments that were already handed
 * over do not count.
 * @param candidate path of the new executable
 */
async function findUndeletable(
  { call, facts }: Job,
  candidate: string,
  { crossings }: Pick<CompareReport, 'crossings'>,
  before: readonly AttachmentCheck[],
): Promise<string | undefined> {
  const crossing = crossings.find(({ scene }) => scene === DELETED_BY_B);
  const { fails = [], left = [] } = crossing ?? {};
  if (!fails.length && !left.length) return undefined;
  const isOurs = isThisExecutable(facts.digest);
  const concerned = isOurs ? await countPending(facts.type, call) : before.length;
  if (concerned === 0) return undefined;
  const what = fails.length
    ? `its DEL fails for current attachments (${fails[0]})`
    : `its DEL leaves ${count(left.length, 'thing')} of current attachments (${left[0]})`;
  const way = isOurs
    ? `run "catena handover --to ${dirname(candidate)} --to ${dirname(facts.target)}" first`
    : 'delete the containers first';
  return `${what}, and ${count(concerned, 'attachment')} could no longer be deleted cleanly; ${way}, or --force swaps anyway`;
}

/** Like {@link findUndeletable}, for the executable that an undo restores. All that is known about it is that it is not ours. */
async function findUndoProblem({ call, facts }: Job, kept: string): Promise<string | undefined> {
  if (!isThisExecutable(facts.digest) || isThisExecutable(kept)) return undefined;
  const concerned = await countPending(facts.type, call);
  if (concerned === 0) return undefined;
  const places = `--to <its dir> --to ${dirname(facts.target)}`;
  return `the previous executable may not be able to delete ${count(concerned, 'attachment')} that the current one created; run "catena handover ${places}" first, or --force undoes anyway`;
}

function isThisExecutable(digest: string): boolean {
  return digest === findDigest(process.execPath) || digest === FRONT?.sha256;
}

/** Number of attachments with the plugin that only our executables can delete. */
async function countPending(type: string, call: CommandCall): Promise<number> {
  const runtime = handoverRuntime(call);
  const concerned = listAttached(undefined, runtime).filter(
    ({ isGone, types }) => !isGone && types.includes(type),
  );
  const looked = await visitAll(concerned, { groupOf: ({ network }) => network }, one =>
    handOverOne(one, 'look', runtime),
  );
  return looked.filter(
    ({ state, plugins }) =>
      state === 'refused' || (state !== 'ready' && plugins.some(one => one.type === type)),
  ).length;
}
