// Which process works on an attachment, how does exactly one get the right to, and what does a dead one leave at work?
//
// README.md says what a lock is. Its entry is a symbolic link, whose target says what its name does not.
//
// A plugin has its own process group and outlives its runner: what it makes after DEL would leak. A process is ended
// only after proof that it is ours: its environment names the dead runner, by process id and start. Its own start is compared
// again before every signal, because process ids are reused.

import { mkdirSync, readlinkSync, renameSync, rmdirSync, rmSync, symlinkSync, unlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type AttachmentId, directoryOf, fileNameOf } from '../cni/attachment.ts';
import { lockScopeOf, notesDirs, runDir } from '../cni/directories.ts';
import { attempt, CniError, ErrorCode, tryAgainLater } from '../cni/errors.ts';
import {
  ageMsOf,
  bootId,
  environmentOf,
  isOfEarlierBoot,
  isRunning,
  type ProcessId,
  processIds,
  processOf,
  RUNNER_VARIABLE,
  readRunningStat,
  thisProcess,
  WORKER_VARIABLE,
} from '../files/process-stat.ts';
import { fileFailure, inDirectory, namesIn } from '../files/read-file.ts';
import { GRACE_MS, PLUGIN_DEADLINE_MS, pause } from '../wait.ts';

export interface Runner extends ProcessId {
  /** Distinguishes the operations of one process. */
  readonly op: string;
  /** When the operation began. */
  readonly time: string;
  /** Milliseconds after which it ends a plugin; {@link PLUGIN_DEADLINE_MS} if the record does not say. */
  readonly deadlineMs?: number;
}

/** A process in another process id namespace counts as alive this long. */
const UNSEEN_MS = 10 * 60_000;

/**
 * Begins an operation of this process. It is alive until {@link endRunner}, or until the process ends.
 * @param deadlineMs milliseconds after which it ends a plugin
 */
export function startRunner(deadlineMs?: number): Runner {
  const own = thisProcess();
  count += 1;
  const op = `${processOf(own)}-${count}`;
  active.add(op);
  const time = new Date().toISOString();
  return { ...own, op, time, ...(deadlineMs === undefined ? {} : { deadlineMs }) };
}

export function endRunner({ op }: Runner): void {
  active.delete(op);
}

/** Whether the operation may still be running. */
export function isAlive({ pid, start, pidns, op, time }: Runner): boolean {
  if (active.has(op)) return true;
  if (pidns === thisProcess().pidns && processOf({ pid, start }) === processOf()) return false;
  return isRunning({ pid, start, pidns }) ?? Math.abs(Date.now() - Date.parse(time)) < UNSEEN_MS;
}

/**
 * The living operation that a record names as not ended. A lock (lock.ts) says the same and more, but the run directory may have been
 * lost, and who only reads need not look there.
 */
export function holderOf({ runners }: { readonly runners: readonly Runner[] }): Runner | undefined {
  return runners.find(isAlive);
}

let count = 0;
const active = new Set<string>();

/** What a lock is for. `remove`: a deletion that no runtime asked for, so the ADD of another runtime waits for its end. */
export type Purpose = 'add' | 'del' | 'remove' | 'change' | 'repair';

/** Whose attachments a lock is about. */
export interface LockPlace {
  /** The journal that has, or would have, their records. */
  readonly stateDir: string;
  /** Names the run directory; that of this process unless given. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
}

/** The right of one operation to work on an attachment. */
export interface Lock {
  readonly runner: Runner;
  /** Operations that had the lock and died: their orphans may still work on the attachment. */
  readonly dead: readonly Runner[];
  /** Goes on for another purpose, without giving the lock away. @throws CniError 5 */
  become(purpose: Purpose): void;
  /** The orphans of the dead are gone. */
  forgetDead(): void;
  /** Also forgets the dead, if nothing of them runs any longer. Safe to repeat. */
  release(): void;
}

/** An attachment, or the path of its lock below the scope. */
type LockKey = AttachmentId | string;

/**
 * Takes the lock of an attachment, or tells who has it.
 * @param deadlineMs milliseconds after which the operation ends a plugin
 * @throws CniError 5: the run directory cannot be written
 */
export function takeLock(
  place: LockPlace,
  key: LockKey,
  purpose: Purpose,
  deadlineMs?: number,
): Lock | { readonly holder: Runner } {
  const dir = dirOf(place, key);
  const runner = startRunner(deadlineMs);
  let isOurs = false;
  try {
    for (let tries = 0; ; tries++) {
      const owners = ownersIn(dir, place.env);
      const holder = owners.find(({ isLiving }) => isLiving)?.runner;
      if (holder) return { holder };
      isOurs = put(dir, runner, targetOf(runner, purpose, place.env), owners, tries < MOST_TRIES);
      if (isOurs) return lockOf(dir, runner, owners, place.env);
    }
  } catch (cause) {
    throw fileFailure('lock', dir, cause);
  } finally {
    if (!isOurs) endRunner(runner);
  }
}

/** Each try that fails needs another process that has just changed the directory. */
const MOST_TRIES = 100;

export function findHolder(place: LockPlace, key: LockKey): Runner | undefined {
  return ownersIn(dirOf(place, key), place.env).find(({ isLiving }) => isLiving)?.runner;
}

/** A killed operation counts as dead from now on, even if the freezer keeps its process. */
export function buryOwner(place: LockPlace, key: LockKey, { op }: Runner): void {
  const entry = join(dirOf(place, key), op);
  // Without a lock, the record alone names it.
  attempt(() => renameSync(entry, `${entry}${OF_DEAD}${op}`));
}

/**
 * Whether a living process deletes the attachment without a request of its runtime. Processes of another process id namespace cannot be
 * seen: they count as ended, so that no ADD waits for ever.
 */
export function isBeingRemoved(env: LockPlace['env'], id: AttachmentId): boolean {
  return REMOVING_SCOPES.some(scope => {
    const dir = join(notesDirs(runDir(env)).locks, scope, pathOf(id));
    return ownersIn(dir, env).some(
      ({ runner, purpose, isLiving }) => purpose === 'remove' && isLiving && isRunning(runner) === true,
    );
  });
}

/** Where removals are of attachments that a plugin of ours may be adding. A pod is removed by its networks. */
const REMOVING_SCOPES = ['own', 'delegates'];

const OPERATION = /^(\d+)-(\d*)-\d+$/;

interface Owner {
  /** Of the entry. */
  readonly name: string;
  readonly target: string;
  readonly runner: Runner;
  readonly purpose: string;
  readonly isLiving: boolean;
  /** Of this boot: something of it may still run. */
  readonly mayLinger: boolean;
}

/** Between the operation that has died and the one that has kept its entry, so that each entry has a name of its own. */
const OF_DEAD = '@';

const dirOf = ({ stateDir, env }: LockPlace, key: LockKey) =>
  join(notesDirs(runDir(env)).locks, lockScopeOf(stateDir), typeof key === 'string' ? key : pathOf(key));

const pathOf = (id: AttachmentId) => join(directoryOf(id.network), fileNameOf(id));

function targetOf({ pidns, deadlineMs, time }: Runner, purpose: Purpose, env: LockPlace['env']): string {
  return [purpose, pidns, bootId(env), deadlineMs ?? '', Date.parse(time)].join(' ');
}

function ownersIn(dir: string, env: LockPlace['env']): Owner[] {
  return namesIn(dir).flatMap(name => {
    try {
      return ownerOf(name, readlinkSync(join(dir, name)), env) ?? strangerOf(name);
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'ENOENT' ? [] : strangerOf(name);
    }
  });
}

function ownerOf(name: string, target: string, env: LockPlace['env']): Owner | undefined {
  const [op = '', keeper] = name.split(OF_DEAD);
  const [, pid, start = ''] = OPERATION.exec(op) ?? [];
  if (pid === undefined) return undefined;
  const [purpose = '', pidns = '', boot = '', deadlineMs = '', since = '0'] = target.split(' ');
  const deadline = deadlineMs === '' ? {} : { deadlineMs: Number(deadlineMs) };
  const time = new Date(Number(since) || 0).toISOString();
  const runner = { pid: Number(pid), start, pidns, op, time, ...deadline };
  const mayLinger = !isOfEarlierBoot({ boot }, env);
  const isLiving = keeper === undefined && mayLinger && isAlive(runner);
  return { name, target, runner, purpose, isLiving, mayLinger };
}

/** What is not ours is removed like the entry of an operation that has died. */
function strangerOf(name: string): Owner {
  const runner = { pid: 0, start: '', pidns: '', op: name, time: '' };
  return { name, target: '', runner, purpose: '', isLiving: false, mayLinger: false };
}

/**
 * @param dead the entries that are there
 * @returns whether the lock is ours; false only if it is worth another try
 */
function put(dir: string, { op }: Runner, target: string, dead: readonly Owner[], mayFail: boolean): boolean {
  const fresh = freshOf(dir, op);
  try {
    inDirectory(fresh, () => mkdirSync(fresh, 0o700));
    symlinkSync(target, join(fresh, op));
    for (const one of dead) {
      if (one.mayLinger) symlinkSync(one.target, join(fresh, keptName(one, op)));
      rmSync(join(dir, one.name), { recursive: true, force: true });
    }
    inDirectory(dir, () => renameSync(fresh, dir));
    return true;
  } catch (error) {
    discard(fresh);
    const { code = '' } = error as NodeJS.ErrnoException;
    // Another one was faster, or a sweep has taken our directory for that of a dead process.
    if (mayFail && ['ENOTEMPTY', 'EEXIST', 'ENOENT'].includes(code)) return false;
    throw error;
  }
}

/** Where an operation prepares what it puts into the directory of a lock: beside the scopes. */
const freshOf = (dir: string, op: string) => join(dirname(dirname(dirname(dir))), `.${op}`);

const keptName = ({ runner }: Owner, op: string) => `${runner.op}${OF_DEAD}${op}`;

function lockOf(dir: string, runner: Runner, owners: readonly Owner[], env: LockPlace['env']): Lock {
  const { op } = runner;
  let isReleased = false;
  let lingering = owners.filter(({ mayLinger }) => mayLinger);
  const forgetDead = () => {
    for (const one of lingering) remove(join(dir, keptName(one, op)));
    lingering = [];
  };
  return {
    runner,
    dead: lingering.map(one => one.runner),
    become(purpose) {
      const fresh = freshOf(dir, op);
      try {
        symlinkSync(targetOf(runner, purpose, env), fresh);
        renameSync(fresh, join(dir, op));
      } catch (cause) {
        discard(fresh);
        throw fileFailure('keep the lock', dir, cause);
      }
    },
    forgetDead,
    release() {
      if (isReleased) return;
      isReleased = true;
      // Of an attachment that is settled, or has no record, nothing else would look for them. If they cannot be looked for, they stay known.
      const isAlone = attempt(() => lingering.length === 0 || !hasOrphans(lingering.map(one => one.runner)));
      if (isAlone) forgetDead();
      remove(join(dir, op));
      endRunner(runner);
      // Unless another one has it already, or the orphans of the dead are not gone.
      attempt(() => rmdirSync(dir));
    },
  };
}

/** Ignores errors, so as not to hide why the lock could not be taken; the next verb sweeps it. */
function discard(fresh: string): void {
  attempt(() => rmSync(fresh, { recursive: true, force: true }));
}

/** Does nothing if the run directory was lost. */
function remove(path: string): void {
  attempt(() => unlinkSync(path));
}

/** An orphan process: its runner has died. */
interface OrphanProcess {
  readonly pid: number;
  /** When it started, in ticks since boot. */
  readonly start: string;
  /** Whether it leads its process group; then the whole group was started by it. */
  readonly isLeader: boolean;
  /** Whether its runner would already have ended it. */
  readonly isOverdue: boolean;
}

/** An interface, and operations that began to work on it and have not ended. */
export interface Orphaned extends Pick<AttachmentId, 'containerId' | 'ifname'> {
  readonly runners: readonly Runner[];
}

/**
 * Processes of plugins that were started for the attachment by runners that began to work on it and have not ended. Also the
 * workers of these runners, which may be in the middle of one of its plugins.
 */
export function findOrphanProcesses({ containerId, ifname, runners }: Orphaned): OrphanProcess[] {
  const isPlugin = pluginOf(containerId, [ifname], runners);
  const isWorker = workerOf(runners);
  return find(runners, environment => isPlugin(environment) ?? isWorker(environment));
}

/** Whether any process is left that these runners, which are dead, have started for whatever attachment. */
function hasOrphans(runners: readonly Runner[]): boolean {
  const isWorker = workerOf(runners);
  return find(runners, one => startedBy(RUNNER_VARIABLE, runners, one) ?? isWorker(one)).length > 0;
}

/** Ends plugins that dead runners started for the ADD of one of the container's interfaces, and waits until they are gone. */
export async function endOrphanAdds(
  { containerId, runners }: Pick<Orphaned, 'containerId' | 'runners'>,
  ifnames: readonly string[],
): Promise<void> {
  await endOrphanProcesses(find(runners, pluginOf(containerId, ifnames, runners, 'ADD')), 0);
}

/** Finds the runner of a process from its environment; undefined if it is not one of ours. */
type Match = (environment: readonly string[]) => Owned | undefined;

interface Owned {
  readonly runner: Runner;
  /** When it began its current work, in milliseconds; undefined if that was its start. */
  readonly begun?: number;
}

/** @param variable in which a process has the runner that started it */
function startedBy(
  variable: string,
  runners: readonly Runner[],
  environment: readonly string[],
): Owned | undefined {
  const runner = runners.find(one => environment.includes(`${variable}=${processOf(one)}`));
  return runner && { runner };
}

function pluginOf(
  containerId: string,
  ifnames: readonly string[],
  runners: readonly Runner[],
  verb?: string,
): Match {
  const container = `CNI_CONTAINERID=${containerId}`;
  return environment => {
    if (!environment.includes(container)) return undefined;
    if (!ifnames.some(ifname => environment.includes(`CNI_IFNAME=${ifname}`))) return undefined;
    if (verb !== undefined && !environment.includes(`CNI_COMMAND=${verb}`)) return undefined;
    return startedBy(RUNNER_VARIABLE, runners, environment);
  };
}

function workerOf(runners: readonly Runner[]): Match {
  return environment => {
    const found = startedBy(WORKER_VARIABLE, runners, environment);
    // The worker may have served other attachments before.
    return found && { ...found, begun: Date.parse(found.runner.time) };
  };
}

/** Longest wait for plugins whose runner has died, unless the operation gives its own less: recovery before a verb must not delay that. */
const ORPHAN_PROCESSES_MS = 5_000;
const LOOK_FOR_ORPHANS_MS = 50;

/**
 * Waits for plugins of a dead runner, and ends those that are past the deadline which the runner had set. Only with the lock.
 * @returns whether a process has begun to work on the attachment and died
 * @throws CniError 11 when they do not end in time
 */
export async function awaitOrphans(
  orphans: Orphaned,
  onWarning?: (warning: CniError) => void,
  deadlineMs = ORPHAN_PROCESSES_MS,
): Promise<boolean> {
  const until = performance.now() + Math.min(deadlineMs, ORPHAN_PROCESSES_MS);
  for (;;) {
    const processes = findOrphanProcesses(orphans);
    const [first] = processes;
    if (first === undefined) return findDead(orphans.runners).length > 0;
    const overdue = processes.filter(({ isOverdue }) => isOverdue);
    if (performance.now() > until) throw stillWorks(first, orphans, overdue.length > 0);
    if (overdue.length) {
      onWarning?.(endsOrphans(overdue, orphans));
      await endOrphanProcesses(overdue, GRACE_MS);
    } else await pause(LOOK_FOR_ORPHANS_MS);
  }
}

function stillWorks({ pid }: OrphanProcess, { containerId, ifname }: Orphaned, isOverdue: boolean): CniError {
  const end = isOverdue ? 'SIGKILL does not end it' : 'it is ended at its deadline; try again after that';
  return tryAgainLater(
    `Cannot work on interface "${ifname}" of container "${containerId}": process ${pid}, a plugin whose runner died, is still working on it; ${end}`,
  );
}

function endsOrphans(overdue: readonly OrphanProcess[], { containerId, ifname }: Orphaned): CniError {
  const pids = overdue.map(({ pid }) => pid).join(', ');
  return new CniError(
    ErrorCode.unknown,
    `Ending process ${pids}, which is working on interface "${ifname}" of container "${containerId}": its runner died and its deadline has passed`,
  );
}

/** Time for a killed process to disappear. */
const GONE_MS = 2_000;
const LOOK_AGAIN_MS = 5;

/**
 * Ends processes, and the groups that they lead: SIGTERM, then SIGKILL for what remains after the grace; a grace of zero kills
 * at once.
 * @returns whether all of them are gone
 */
export async function endOrphanProcesses(
  orphans: readonly OrphanProcess[],
  graceMs: number,
): Promise<boolean> {
  if (graceMs > 0) {
    for (const one of orphans) signal(one, 'SIGTERM');
    if (await areGone(orphans, graceMs)) return endGroups(orphans);
  }
  for (const one of orphans) signal(one, 'SIGKILL');
  return areGone(orphans, GONE_MS);
}

/**
 * Kills the rest of a group whose leader has exited: no unrelated process can have joined it since, and one that came later with that number
 * leads a group of its own.
 */
function endGroups(orphans: readonly OrphanProcess[]): true {
  for (const { pid, isLeader } of orphans)
    if (isLeader && !attempt(() => process.kill(pid, 0))) trySignal(-pid, 'SIGKILL');
  return true;
}

async function areGone(orphans: readonly OrphanProcess[], withinMs: number): Promise<boolean> {
  const until = performance.now() + withinMs;
  while (orphans.some(one => look(one) !== false)) {
    if (performance.now() > until) return false;
    await pause(LOOK_AGAIN_MS);
  }
  return true;
}

function signal(orphan: OrphanProcess, name: NodeJS.Signals): void {
  if (look(orphan)) trySignal(orphan.isLeader ? -orphan.pid : orphan.pid, name);
}

/** Does nothing if it has just exited. */
function trySignal(target: number, name: NodeJS.Signals): void {
  attempt(() => process.kill(target, name));
}

/** Whether it runs; undefined without a free descriptor to look. A zombie, which only waits for its parent, does not. */
function look({ pid, start }: OrphanProcess): boolean | undefined {
  return isRunning({ pid, start, pidns: thisProcess().pidns });
}

function find(runners: readonly Runner[], match: Match): OrphanProcess[] {
  const dead = findDead(runners);
  if (dead.length === 0) return [];
  const isOfDead: Match = environment => {
    const found = match(environment);
    return found && dead.includes(processOf(found.runner)) ? found : undefined;
  };
  return processIds().flatMap(pid => prove(pid, isOfDead) ?? []);
}

/** Proves that the environment is that of the process with this start: both are read twice and must match. */
function prove(pid: number, match: Match): OrphanProcess | undefined {
  // Most processes are not ours, and one check is enough.
  if (match(environmentOf(pid)) === undefined) return undefined;
  const stat = readRunningStat(pid);
  const found = match(environmentOf(pid));
  if (stat === undefined || found === undefined || readRunningStat(pid)?.start !== stat.start)
    return undefined;
  const { start, group } = stat;
  const ageMs = ageMsOf(stat);
  const { runner, begun } = found;
  // After the clock was set back, it must not look as if it had just begun.
  const workedMs = begun === undefined ? ageMs : Math.min(ageMs, Math.abs(Date.now() - begun));
  const isOverdue = workedMs > (runner.deadlineMs ?? PLUGIN_DEADLINE_MS);
  return { pid, start, isLeader: group === pid, isOverdue };
}

/** Runners other than this process, which has the lock: they must be dead. */
function findDead(runners: readonly Runner[]): string[] {
  const own = processOf();
  return runners.map(processOf).filter(one => one !== own);
}

/** Removes what processes left that died while they prepared a lock. */
export function sweepLocks(env: LockPlace['env']): void {
  const { locks } = notesDirs(runDir(env));
  for (const name of namesIn(locks).filter(one => one.startsWith('.'))) {
    const [, pid, start = ''] = OPERATION.exec(name.slice(1)) ?? [];
    // A living process whose directory is gone makes it again, so one that cannot be seen loses nothing.
    if (isRunning({ ...thisProcess(), pid: Number(pid), start }) !== true)
      rmSync(join(locks, name), { recursive: true, force: true });
  }
}

/** Removes the locks of dead processes of which nothing runs any longer. Those of attachments that are settled are not met otherwise. */
export function sweepDeadLocks(place: LockPlace): void {
  const root = join(notesDirs(runDir(place.env)).locks, lockScopeOf(place.stateDir));
  for (const network of namesIn(root)) {
    for (const name of namesIn(join(root, network))) {
      const key = join(network, name);
      const owners = ownersIn(join(root, key), place.env);
      if (owners.length === 0 || owners.some(({ isLiving }) => isLiving)) continue;
      if (hasOrphans(owners.map(({ runner }) => runner))) continue;
      const lock = takeLock(place, key, 'repair');
      if (!('holder' in lock)) lock.release();
    }
  }
}
