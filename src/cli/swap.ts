// May a candidate replace an executable, does the user want it, and what became of it?

import {
  chmodSync,
  constants,
  copyFileSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { isatty } from 'node:tty';
import { type Conflist, listUses } from '../chain/config/conflist.ts';
import { findPlugin } from '../chain/config/find-plugin.ts';
import { FRONT } from '../chain/config/front-program.ts';
import { listNetworks } from '../chain/config/load.ts';
import { visitAll } from '../chain/run/visits.ts';
import { defined } from '../cni/json.ts';
import { isRunning, thisProcess } from '../files/process-stat.ts';
import { absolutePath } from '../files/read-file.ts';
import { type CompareReport, renderSummary } from '../lab/compare/report.ts';
import { DELETED_BY_B } from '../lab/compare/scene.ts';
import { renderVerdict } from '../lab/conformance/examine.ts';
import { runOwnCommand } from '../lab/reexec.ts';
import { count } from '../lab/words.ts';
import { handOverOne, listAttached } from '../node/handover/hand-over.ts';
import type { AttachmentCheck } from '../watch/examine.ts';
import { outOfEnvelope } from './answers/envelope.ts';
import type { AnswerOf } from './answers/kinds.ts';
import { type CommandCall, UsageError } from './command.ts';
import { handoverRuntime } from './handover/hand-over-all.ts';
import { findDigest, listSwaps } from './install/swap.ts';
import { noteDone } from './log/events.ts';
import { isData } from './output/format.ts';
import { printAnswer } from './output/print.ts';
import { confDirOf } from './target.ts';
import { foldText, widthOf } from './terminal/lines.ts';

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

/** Prints text for people with lines that fit the terminal, unless the command prints JSON. */
export function tell(call: CommandCall, text: string): void {
  if (!isData(call)) call.out(foldText(text, widthOf(call)));
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

/** The candidate, and what it replaces. */
export interface Examined {
  /** A copy of the candidate in a directory of its own, under the plugin's name. */
  readonly copy: string;
  readonly type: string;
  readonly list: Conflist;
  /** The file of the conflist. */
  readonly file: string;
  readonly pluginDirs: readonly string[];
}

/** Examines the candidate with `catena conformance`, using the conflist's configuration if the plugin is an entry of it. */
export async function examineRules(examined: Examined, call: CommandCall): Promise<AnswerOf<'Conformance'>> {
  const { copy, type, list, file } = examined;
  const isEntry = list.plugins.some(entry => entry.type === type);
  const given = isEntry ? ['--from', file, ...capOf(call)] : [];
  return await ask('conformance', [copy, ...given, ...dirsOf(examined)], call);
}

/** Runs the conflist with both executables, with `catena compare`. */
export async function compareBoth(examined: Examined, call: CommandCall): Promise<CompareReport> {
  const { copy, type, file } = examined;
  const scenes = call.texts('scene');
  // Existing attachments must stay deletable, so this scene is always played.
  const played = scenes.length ? [...new Set([...scenes, DELETED_BY_B])] : [];
  const chosen = [
    ...call.texts('ignore').flatMap(one => ['--ignore', one]),
    ...played.flatMap(one => ['--scene', one]),
  ];
  const args = ['--with', copy, '--link', type, file, ...dirsOf(examined), ...chosen, ...capOf(call)];
  return await ask('compare', args, call);
}

/** The broken rules and the verdict. */
export function renderRules(report: AnswerOf<'Conformance'>): string {
  const broken = report.rules.filter(({ outcome }) => outcome === 'broken');
  const lines = broken.map(({ level, id, title, details }) => {
    return `  ${level.padEnd(6)}  ${id}: ${title}${details === undefined ? '' : `; seen: ${details}`}\n`;
  });
  return `${renderVerdict(report)}${lines.join('')}`;
}

/** The differences between the two. */
export function renderComparison(report: CompareReport, { pluginDirs, type }: Examined): string {
  return renderSummary(report, pluginDirs.join(':'), `the candidate for ${type}`);
}

function dirsOf({ pluginDirs }: Examined): string[] {
  return pluginDirs.flatMap(dir => ['--bin-dir', dir]);
}

function capOf(call: CommandCall): string[] {
  const cap = call.text('cap');
  return cap === undefined ? [] : ['--cap', cap];
}

async function ask<Reply>(command: string, args: readonly string[], call: CommandCall): Promise<Reply> {
  const { stdout, stderr, exitCode } = await runOwnCommand([command, '--json', ...args], call);
  // With exit code 1 there is a verdict as well.
  if (stdout.startsWith('{')) return outOfEnvelope(JSON.parse(stdout)) as Reply;
  throw new Error(`Cannot examine with "catena ${command}": ${stderr.trim() || `exit code ${exitCode}`}`);
}

/**
 * Copies an executable into a directory of its own while the work runs. Multi-call executables behave according to their name,
 * and files next to the candidate will not be next to it once it is installed. Copies left by killed processes are deleted.
 */
export async function withCopy<T>(
  candidate: string,
  name: string,
  work: (copy: string) => Promise<T>,
): Promise<T> {
  sweep();
  const dir = mkdtempSync(join(tmpdir(), `${PREFIX}${Object.values(namesOf(thisProcess())).join('-')}-`));
  try {
    const copy = join(dir, name);
    copyFileSync(candidate, copy, constants.COPYFILE_FICLONE);
    // It must be accessible from another user's namespace, too.
    for (const path of [dir, copy]) chmodSync(path, 0o755);
    return await work(copy);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const PREFIX = 'catena-swap-';
const NAME = /^catena-swap-(\d+)-(\d*)-(\d*)-/;

/** A PID namespace is `pid:[4026531836]`: the number is enough for a file name. */
function namesOf({ pid, start, pidns }: ReturnType<typeof thisProcess>) {
  return { pid: String(pid), start, pidns: pidns.replace(/\D/g, '') };
}

function sweep(): void {
  const own = thisProcess();
  for (const name of readdirSync(tmpdir())) {
    const [, pid = '', start = '', pidns] = NAME.exec(name) ?? [];
    if (pidns !== namesOf(own).pidns) continue;
    if (isRunning({ pid: Number(pid), start, pidns: own.pidns }) === false)
      rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}

/** What is known about the plugin and its current executable. */
type Changing = Pick<Survey, 'link' | 'target' | 'digest'>;

/**
 * Why a swap would leave attachments that nothing can delete; undefined if it would not. Attachments that were already handed
 * over do not count.
 * @param candidate path of the new executable
 */
export async function findUndeletable(
  { link: type, target, digest }: Changing,
  candidate: string,
  { crossings }: Pick<CompareReport, 'crossings'>,
  before: readonly AttachmentCheck[],
  call: CommandCall,
): Promise<string | undefined> {
  const crossing = crossings.find(({ scene }) => scene === DELETED_BY_B);
  const { fails = [], left = [] } = crossing ?? {};
  if (!fails.length && !left.length) return undefined;
  const isOurs = isThisExecutable(digest);
  const concerned = isOurs ? await countPending(type, call) : before.length;
  if (concerned === 0) return undefined;
  const what = fails.length
    ? `its DEL fails for current attachments (${fails[0]})`
    : `its DEL leaves ${count(left.length, 'thing')} of current attachments (${left[0]})`;
  const way = isOurs
    ? `run "catena handover --to ${dirname(candidate)} --to ${dirname(target)}" first`
    : 'delete the containers first';
  return `${what}, and ${count(concerned, 'attachment')} could no longer be deleted cleanly; ${way}, or --force swaps anyway`;
}

/** Like {@link findUndeletable}, for the executable that an undo restores. All that is known about it is that it is not ours. */
export async function findUndoProblem(
  { link: type, target, digest }: Changing,
  kept: string,
  call: CommandCall,
): Promise<string | undefined> {
  if (!isThisExecutable(digest) || isThisExecutable(kept)) return undefined;
  const concerned = await countPending(type, call);
  if (concerned === 0) return undefined;
  const places = `--to <its dir> --to ${dirname(target)}`;
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
    ({ state, links }) =>
      state === 'refused' || (state !== 'ready' && links.some(({ link }) => link === type)),
  ).length;
}
