// Which orphan processes still work on an attachment, and how are they ended?
//
// A plugin has its own process group and outlives its runner: what it makes after DEL would leak. The runner would have ended it
// at the deadline that its record names, so the next process that works on the attachment does that instead. A process is ended
// only after proof that it is ours: its environment names the dead runner, by process id and start. Its own start is compared
// again before every signal, because process ids are reused.
import { readdirSync, readFileSync } from 'node:fs';
import { ageMsOf, isRunning, readRunningStat, thisProcess } from '../files/process-stat.ts';
import { pause } from '../wait.ts';
import type { AttachmentRecord } from './record.ts';
import { PLUGIN_DEADLINE_MS, processOf, RUNNER_VARIABLE, type Runner, WORKER_VARIABLE } from './runner.ts';

/** An orphan process: its runner has died. */
export interface OrphanProcess {
  readonly pid: number;
  /** When it started, in ticks since boot. */
  readonly start: string;
  /** Whether it leads its process group; then the whole group was started by it. */
  readonly isLeader: boolean;
  /** Whether its runner would already have ended it. */
  readonly isOverdue: boolean;
}

/** Which processes to look for. */
export interface OrphanProcessScope {
  readonly containerId: string;
  readonly ifnames: readonly string[];
  /** Runners that began to work on the attachment and have not ended. */
  readonly runners: readonly Runner[];
  /** Only plugins that were started for this verb. */
  readonly verb?: string;
}

/**
 * Processes of plugins that were started for the attachment by runners that began to work on it and have not ended. Also the
 * workers of these runners, which may be in the middle of one of its plugins.
 */
export function findOrphanProcesses(
  record: Pick<AttachmentRecord, 'containerId' | 'ifname' | 'runners'>,
): OrphanProcess[] {
  const { containerId, ifname, runners } = record;
  const isPlugin = pluginOf({ containerId, ifnames: [ifname], runners });
  const isWorker = workerOf(runners);
  return find(runners, environment => isPlugin(environment) ?? isWorker(environment));
}

/** Whether any process is left that these runners, which are dead, have started for whatever attachment. */
export function hasOrphans(runners: readonly Runner[]): boolean {
  const isWorker = workerOf(runners);
  const isPlugin: Match = environment => {
    const runner = runners.find(one => environment.includes(`${RUNNER_VARIABLE}=${processOf(one)}`));
    return runner && { runner, begun: undefined };
  };
  return find(runners, environment => isPlugin(environment) ?? isWorker(environment)).length > 0;
}

/** Processes of plugins that dead runners started for one of the container's interfaces. */
export function findPlugins(scope: OrphanProcessScope): OrphanProcess[] {
  return find(scope.runners, pluginOf(scope));
}

/** Finds the runner of a process from its environment; undefined if it is not one of ours. */
type Match = (environment: readonly string[]) => Owned | undefined;

interface Owned {
  readonly runner: Runner;
  /** When it began its current work, in milliseconds; undefined if that was its start. */
  readonly begun: number | undefined;
}

function pluginOf({ containerId, ifnames, runners, verb }: OrphanProcessScope): Match {
  const container = `CNI_CONTAINERID=${containerId}`;
  return environment => {
    if (!environment.includes(container)) return undefined;
    if (!ifnames.some(ifname => environment.includes(`CNI_IFNAME=${ifname}`))) return undefined;
    if (verb !== undefined && !environment.includes(`CNI_COMMAND=${verb}`)) return undefined;
    const runner = runners.find(one => environment.includes(`${RUNNER_VARIABLE}=${processOf(one)}`));
    return runner && { runner, begun: undefined };
  };
}

function workerOf(runners: readonly Runner[]): Match {
  return environment => {
    const runner = runners.find(one => environment.includes(`${WORKER_VARIABLE}=${processOf(one)}`));
    // The worker may have served other attachments before.
    return runner && { runner, begun: Date.parse(runner.time) };
  };
}

/** Whether a process has begun to work on the attachment and died; call only with the lock. */
export function wasCutOff({ runners }: Pick<AttachmentRecord, 'runners'>): boolean {
  return findDead(runners).length > 0;
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

/** Kills the rest of a group whose leader has exited: no unrelated process can have joined it since. */
function endGroups(orphans: readonly OrphanProcess[]): true {
  for (const { pid, isLeader } of orphans) if (isLeader && !exists(pid)) trySignal(-pid, 'SIGKILL');
  return true;
}

async function areGone(orphans: readonly OrphanProcess[], withinMs: number): Promise<boolean> {
  const until = performance.now() + withinMs;
  while (orphans.some(isHere)) {
    if (performance.now() > until) return false;
    await pause(LOOK_AGAIN_MS);
  }
  return true;
}

function signal(orphan: OrphanProcess, name: NodeJS.Signals): void {
  if (isHere(orphan)) trySignal(orphan.isLeader ? -orphan.pid : orphan.pid, name);
}

function trySignal(target: number, name: NodeJS.Signals): void {
  try {
    process.kill(target, name);
  } catch {
    // It has just exited.
  }
}

/** A zombie, which only waits for its parent, does not count. */
function isHere({ pid, start }: OrphanProcess): boolean {
  return isRunning({ pid, start, pidns: thisProcess().pidns }) === true;
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

function find(runners: readonly Runner[], match: Match): OrphanProcess[] {
  const dead = findDead(runners);
  if (dead.length === 0) return [];
  const isOfDead: Match = environment => {
    const found = match(environment);
    return found && dead.includes(processOf(found.runner)) ? found : undefined;
  };
  return readdirSync('/proc').flatMap(name =>
    /^\d+$/.test(name) ? (prove(Number(name), isOfDead) ?? []) : [],
  );
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
function findDead(runners: AttachmentRecord['runners']): string[] {
  const own = processOf();
  return runners.map(processOf).filter(one => one !== own);
}

/** Empty if the process has exited, or belongs to another user. */
function environmentOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
  } catch {
    return [];
  }
}
