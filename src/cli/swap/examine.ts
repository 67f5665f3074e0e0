// May a candidate replace an executable: does it keep the rules, behave the same, and delete existing attachments?
import { chmodSync, constants, copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Conflist } from '../../chain/config/conflist.ts';
import { FRONT } from '../../chain/config/front-program.ts';
import { visitAll } from '../../chain/run/visits.ts';
import { isRunning, thisProcess } from '../../files/process-stat.ts';
import { type CompareReport, renderSummary } from '../../lab/compare/report.ts';
import { DELETED_BY_B } from '../../lab/compare/scene.ts';
import { renderVerdict } from '../../lab/conformance/examine.ts';
import { runOwnCommand } from '../../lab/reexec.ts';
import { count } from '../../lab/words.ts';
import { handOverOne, listAttached } from '../../node/handover/hand-over.ts';
import type { AttachmentCheck } from '../../watch/examine.ts';
import { outOfEnvelope } from '../answers/envelope.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import type { CommandCall } from '../command.ts';
import { handoverRuntime } from '../handover/hand-over-all.ts';
import { findDigest } from '../install/swap.ts';
import type { Survey } from './report.ts';

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
