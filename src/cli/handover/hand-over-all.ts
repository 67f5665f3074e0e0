// How are many attachments handed over, by which plugins and to which executables, with a trial for each kind of them, and how is that reported?

import { chmodSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import type { Conflist } from '../../chain/config/conflist.ts';
import type { ChainRuntime, Runtime } from '../../chain/run/runtime.ts';
import { INTERRUPTED, visitAll } from '../../chain/run/visits.ts';
import { type AttachmentId, keyOf, toId } from '../../cni/attachment.ts';
import { renderCniArgs } from '../../cni/env.ts';
import { absolutePath } from '../../files/read-file.ts';
import type { CompareReport } from '../../lab/compare/report.ts';
import { DELETED_AFTER_HANDOVER } from '../../lab/compare/scene.ts';
import { runOwnCommand } from '../../lab/reexec.ts';
import { count, oneLine } from '../../lab/words.ts';
import {
  findMissing,
  type HandedAttachment,
  type Handover,
  handOverOne,
  isMadeIn,
  listAttached,
} from '../../node/handover/hand-over.ts';
import { ownSegments } from '../../worker/client.ts';
import { ownWorker, type WorkerSource } from '../../worker/process.ts';
import type { CommandCall } from '../command.ts';
import { REPLACED } from '../install/files.ts';
import type { UninstallStep } from '../install/lay.ts';
import { noteDone } from '../log/events.ts';
import { runtimeOf } from '../target.ts';

/**
 * A runtime in which a worker of this executable serves every plugin that this executable contains. Whether there is something to
 * hand over depends on what an attachment is made of, not on the file in the node's directory: after a rollback, that is the
 * reference's.
 */
export function handoverRuntime(call: CommandCall): ChainRuntime {
  return {
    ...runtimeOf(call),
    segments: ownSegments(throughThisFile(call.workers ?? ownWorker()), call.cwd),
    find: type => join(dirname(process.execPath), type),
    isOwn: path => call.plugins.types.includes(basename(path)),
  };
}

/** A plugin is identified by its name; a file of that name need not exist. */
function throughThisFile(source: WorkerSource): WorkerSource {
  const path = process.execPath;
  return {
    use: ({ env }, work, which) => source.use({ path, env }, work, which),
  };
}

/** Executables by plugin name. */
type Executables = ReadonlyMap<string, string>;

/** Finds the plugins in the directories; the first directory that has one counts. */
export function findExecutables(types: Iterable<string>, dirs: readonly string[]): Executables {
  const found = [...types].flatMap(type => {
    const path = dirs.map(dir => resolve(dir, type)).find(isFile);
    return path === undefined ? [] : [[type, path] as const];
  });
  return new Map(found);
}

/** Makes a temporary directory of plugins while the work runs. It is accessible from another user's namespace, too. */
export async function withPluginDir<T>(prefix: string, work: (dir: string) => Promise<T>): Promise<T> {
  const dir = mkdtempSync(join(tmpdir(), prefix));
  try {
    chmodSync(dir, 0o755);
    return await work(dir);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Whether a file is there, or a link to one. */
export function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

interface HandoverPlan {
  /** Executables that will delete the attachments. */
  readonly executables: Executables;
  /** Name of their location, for messages. */
  readonly place: string;
  /** Directories that must be visible during the trials. */
  readonly visible: readonly string[];
  readonly mode: 'look' | 'do';
  /** Skip the trials, and hand over the others if one cannot be. */
  readonly force: boolean;
}

/**
 * Asks the plugins of every attachment before any of them changes something. If one cannot be handed over, none is, and the others
 * stay `pending`, unless `force` is set.
 */
export async function handOverAll(
  attached: readonly HandedAttachment[],
  plan: HandoverPlan,
  call: CommandCall,
  runtime: Runtime,
): Promise<Handover[]> {
  return await withPluginDir('catena-handover-', async dir => {
    for (const [type, path] of plan.executables) symlinkSync(path, join(dir, type));
    const trials = new Map<string, Promise<string | undefined>>();
    const findProblem = async (one: HandedAttachment): Promise<string | undefined> => {
      const { list } = one;
      const missing = findMissing(one, plan.executables, plan.place);
      if (missing !== undefined || list === undefined || one.isGone || plan.force) return missing;
      // What holds for one of a list with the same kinds of capability arguments holds for all.
      const kind = JSON.stringify([list.source, Object.keys(one.capabilityArgs).sort()]);
      // While a trial takes long, that of another network begins: each has a file of its own.
      const file = join(dir, `${trials.size}.conflist`);
      const trial = trials.get(kind) ?? findTrialProblem(list, one, file, plan.visible, call);
      trials.set(kind, trial);
      return trial;
    };
    const limits = {
      groupOf: ({ network }: HandedAttachment) => network,
      signal: call.signal,
      instead: (one: HandedAttachment): Handover => ({
        ...toId(one),
        state: 'refused',
        plugins: [],
        why: INTERRUPTED,
      }),
    };
    const look = async (one: HandedAttachment): Promise<Handover> => {
      const why = await findProblem(one);
      if (why === undefined) return handOverOne(one, 'look', runtime);
      return { ...toId(one), state: 'refused', plugins: [], why };
    };
    const found = await visitAll(attached, limits, look);
    const isRefused = !plan.force && found.some(({ state }) => state === 'refused');
    if (plan.mode === 'look' || isRefused) return found;
    // Of those that are ready, the note of the ADD goes.
    const next = attached.filter((_, place) => found[place]?.state !== 'refused');
    const done = await visitAll(next, limits, async one => {
      const after = await handOverOne(one, 'do', runtime);
      if (after.state === 'handed over') noteDone(call, 'HANDOVER', `to ${plan.place}`, { id: after });
      return after;
    });
    const after = new Map(done.map(one => [keyOf(one), one]));
    return found.map(one => after.get(keyOf(one)) ?? one);
  });
}

/**
 * Runs the conflist with our plugins, hands over, and has the other executables delete.
 * @param example one of the attachments of a kind
 * @param file beside the other executables, to which the conflist is written
 * @param visible directories that these executables need
 * @returns why it does not work; undefined if it does
 */
async function findTrialProblem(
  list: Conflist,
  { args, capabilityArgs, ifname }: HandedAttachment,
  file: string,
  visible: readonly string[],
  call: CommandCall,
): Promise<string | undefined> {
  const plugins = list.plugins.map(({ conf }) => conf);
  writeFileSync(file, JSON.stringify({ cniVersion: list.version, name: list.name, plugins }));
  const dirs = [dirname(process.execPath), ...visible];
  const argv = [
    ...['compare', '--json', '--with', dirname(file), '--scene', DELETED_AFTER_HANDOVER, '--ifname', ifname],
    ...(args.length ? ['--args', renderCniArgs(args)] : []),
    ...(Object.keys(capabilityArgs).length ? ['--cap', JSON.stringify(capabilityArgs)] : []),
    ...dirs.flatMap(one => ['--bin-dir', one]),
    file,
  ];
  const { stdout, problem } = await runOwnCommand(argv, call);
  if (!stdout.startsWith('{')) return `the trial failed: ${problem}`;
  const { crossings } = JSON.parse(stdout) as CompareReport;
  const [crossing] = crossings;
  if (crossing === undefined) return 'the trial gave no result';
  const { untried, fails, left } = crossing;
  if (untried !== undefined) return `the trial failed, since ADD fails in temporary namespaces: ${untried}`;
  if (fails.length) return `DEL still fails: ${fails.join('; ')}`;
  return left.length ? `DEL leaves ${left.join('; ')}` : undefined;
}

const STATES = ['handed over', 'pending', 'ready', 'refused'] as const;

/** A line for each attachment with what each of its plugins had, then the number of attachments in each state. */
export function renderHandovers(
  handovers: readonly Handover[],
  titleOf: (id: AttachmentId) => string,
): string {
  const lines = handovers.flatMap(({ state, plugins, why, ...id }) => [
    `${state.padEnd(11)}  ${titleOf(id)}${why === undefined ? '' : `: ${why}`}`,
    ...plugins.map(({ type, parts }) => `  ${type}: ${parts.join(', ')}`),
  ]);
  const counts = STATES.map(state => `${handovers.filter(one => one.state === state).length} ${state}`);
  return `${[...lines, `attachments: ${counts.join(', ')}`].map(oneLine).join('\n')}\n`;
}

export interface HandoverOutcome {
  readonly handovers: readonly Handover[];
  /** Why our executables must stay, and what to do about it. */
  readonly refusal?: string;
}

/**
 * Checks every attachment with a plugin that this uninstallation removes: can the restored executable delete it? With
 * `--hand-over`, hands it over.
 */
export async function handOverBefore(
  call: CommandCall,
  binDir: string,
  steps: readonly UninstallStep[],
): Promise<HandoverOutcome> {
  const inBinDir = steps.filter(({ path }) => dirname(path) === binDir);
  const going = inBinDir.filter(({ action }) => action !== 'keep').map(({ path }) => basename(path));
  // Without its records and tables, no copy of our plugins elsewhere could delete an attachment either.
  const purges = call.on('purge');
  if ((!going.length && !purges) || call.on('force')) return { handovers: [] };
  const runtime = handoverRuntime(call);
  const concerned = purges ? call.plugins.types : going;
  const attached = listAttached(undefined, runtime).filter(
    one =>
      !one.isGone && (purges || isMadeIn(binDir, one)) && one.types.some(type => concerned.includes(type)),
  );
  if (!attached.length) return { handovers: [] };
  const absolute = (dir: string) => absolutePath(dir, call.cwd);
  const [to, others] = [call.texts('to').map(absolute), call.texts('bin-dir').slice(1).map(absolute)];
  const executables: Executables = new Map([
    ...findExecutables(going, [...others, ...to]),
    ...findExecutables(
      attached.flatMap(({ types }) => types).filter(type => !going.includes(type)),
      [binDir, ...others, ...to],
    ),
    ...inBinDir.flatMap(({ path, action }) =>
      action === 'restore' ? [[basename(path), `${path}${REPLACED}`] as const] : [],
    ),
  ]);
  const handsOver = call.on('hand-over');
  const plan = {
    executables,
    force: false,
    visible: [binDir, ...others, ...to],
    place: to.length
      ? `"${binDir}" afterwards, nor in ${to.map(dir => `"${dir}"`).join(' or ')}`
      : `"${binDir}" afterwards`,
    mode: handsOver && !call.on('dry-run') ? ('do' as const) : ('look' as const),
  };
  const handovers = await handOverAll(attached, plan, call, runtime);
  const number = (state: Handover['state']) => handovers.filter(one => one.state === state).length;
  const [refused, pending] = [number('refused'), handsOver ? 0 : number('pending')];
  if (refused + pending === 0) return { handovers };
  const advice = [
    ...(pending ? ['--hand-over makes them deletable by the restored executables and continues'] : []),
    ...(refused && !to.length ? ['--to <dir> names the executables to use where none is restored'] : []),
    'or delete the containers first; --force uninstalls anyway and leaves them as they are',
  ];
  return {
    handovers,
    refusal: `${count(refused + pending, 'attachment')} could no longer be deleted; ${advice.join('; ')}`,
  };
}
