// Which worker serves the next call?

import type { AnswerOf } from '../answers/kinds.ts';
import type { Invocation } from '../chain/run/exec-plugin.ts';
import { networkIn } from '../cni/invocation.ts';
import { tryRead } from '../files/read-file.ts';
import type { WorkerCall, WorkerSource } from '../worker/client.ts';
import { type Limits, WorkerProcess } from '../worker/process.ts';
import { rest } from '../worker/staying.ts';

/** How large a pool may grow, and when a worker is replaced. */
export interface PoolLimits {
  /**
   * Maximum number of workers at work, besides the one that deletes devices. Waiting workers do not count: those that hold
   * deferred removals, and those whose call takes longer than {@link STUCK_MS}. There are at most {@link SPARE} of them.
   */
  readonly workers: number;
  /** Calls after which a worker is replaced. */
  readonly calls: number;
  /** Resident bytes above which a worker is replaced. */
  readonly bytes: number;
  /** Milliseconds after which an idle worker is ended; one always stays. */
  readonly idleMs: number;
}

/** Default limits. */
export const POOL_LIMITS: PoolLimits = { workers: 4, calls: 5_000, bytes: 192 * 1024 * 1024, idleMs: 30_000 };

/** A pool in numbers. */
export type PoolState = NonNullable<AnswerOf<'DaemonState'>['pool']>;

/** Path of the running program, valid even after another file has taken its name. */
const OWN_PROGRAM = '/proc/self/exe';
/** Number of calls after which an idle worker is replaced rather than kept. */
const CALLS_THAT_WEIGH = 200;
/** How often a worker's memory is checked, in calls. */
const LOOK_EVERY = 50;
const READY_DEADLINE_MS = 10_000;
/** Longer than a netlink socket waits for its answer. */
const REMOVE_DEADLINE_MS = 40_000;
/** A longer call is waiting for something: a plugin that it has started, or a lock. Another container must not wait for that. */
const STUCK_MS = 500;
/** Maximum number of workers besides those at work. */
const SPARE = 12;
/** Of these, at most so many serve one network, whose server or foreign plugin may hang. */
const SPARE_OF_ONE = 8;
/**
 * Where no worker ends a call for this time, and all wait for something, calls that wait are given up. They have not begun: their clients
 * make them. While workers compute, waiting is cheaper, however long it takes: a call of its own computes several times as much.
 */
const WAIT_MS = 1_000;
/** A long call that had or wanted a processor for more than this part of its time waits for nothing else. */
const AT_WORK_SHARE = 0.5;
/** A worker's deferred removals run after this time even without a request to run them. It is longer than any call takes. */
const HOLD_MS = 15 * 60_000;
const SWEEP_EVERY_MS = 250;

interface Member {
  readonly process: WorkerProcess;
  /** Number of calls that it had answered when its memory was last checked. */
  looked: number;
  /** When it got its current call, or when its last call ended. */
  since: number;
  /** Milliseconds for which it had had or wanted a processor then. */
  wantedMs: number;
  /** The network of its current call. */
  network: () => string;
  /** It has freed the memory that its calls left behind. */
  rested: boolean;
}

interface Waiter {
  readonly since: number;
  readonly network: () => string;
  take(member: Member | undefined): void;
}

/**
 * Workers that serve calls of any chain, one call at a time each. A worker that has ended is replaced when another one is needed.
 * One that holds deferred removals of a chain serves no other chain until these have run.
 */
export class WorkerPool implements WorkerSource {
  readonly #env: Invocation['env'];
  readonly #reaper: DeviceRemover;
  readonly #sweep: ReturnType<typeof setInterval>;
  readonly #health: WorkerHealth;
  #limits: PoolLimits;
  #idle: Member[] = [];
  readonly #busy = new Set<Member>();
  readonly #holding = new Set<Member>();
  readonly #waiting: Waiter[] = [];
  #reaping: WorkerProcess | undefined;
  #removing = false;
  #removedAt = 0;
  #trying = false;
  /** When a worker last ended a call. */
  #movedAt = 0;
  /** The same by network. */
  readonly #moved = new Map<string, number>();

  constructor(env: Invocation['env'], limits: PoolLimits, events: HealthEvents) {
    this.#env = env;
    this.#limits = limits;
    this.#health = new WorkerHealth(events);
    this.#reaper = new DeviceRemover(indexes => this.#removeNow(indexes));
    this.#sweep = setInterval(() => this.#tidy(), SWEEP_EVERY_MS);
    this.#sweep.unref();
    this.#idle.push(this.#start());
  }

  get state(): PoolState {
    const busy = this.#busy.size + this.#holding.size;
    return { workers: busy + this.#idle.length, busy, waiting: this.#waiting.length };
  }

  /** Why no call can be served now; undefined if calls can be. */
  get problem(): string | undefined {
    const { problem } = this.#health;
    return problem === undefined || this.#hasAny() ? undefined : `cannot start a worker: ${problem}`;
  }

  set limits(limits: PoolLimits) {
    this.#limits = limits;
  }

  async use<T>(
    invocation: Pick<WorkerCall, 'stdin'>,
    work: (worker: WorkerProcess) => Promise<T>,
    which?: WorkerProcess,
  ): Promise<T> {
    if (which === undefined) return this.#lend(work, networkOf(invocation));
    const own = [...this.#holding].find(({ process }) => process === which);
    // It is serving a call of the same chain, or it has ended. In both cases it answers in order.
    if (own === undefined) return work(which);
    this.#holding.delete(own);
    return this.#lendOut(own, work, networkOf(invocation));
  }

  async #lend<T>(work: (worker: WorkerProcess) => Promise<T>, network = () => ''): Promise<T> {
    const member = this.#isHeldUp(network) ? undefined : await this.#take(network);
    if (member === undefined) {
      return work(new WorkerProcess({ absent: this.problem ?? 'all workers are busy' }, this.#env));
    }
    return this.#lendOut(member, work, network);
  }

  async #lendOut<T>(
    member: Member,
    work: (worker: WorkerProcess) => Promise<T>,
    network: () => string,
  ): Promise<T> {
    this.#busy.add(member);
    member.since = performance.now();
    member.wantedMs = wantedCpuMs(member.process.pid);
    member.rested = false;
    member.network = network;
    try {
      return await work(member.process);
    } finally {
      this.#giveBack(member);
    }
  }

  remove(indexes: readonly number[], _limits: Limits): Promise<boolean> {
    return this.#reaper.remove(indexes);
  }

  /** Whether a worker answers. */
  async ready(): Promise<boolean> {
    const limits = { deadlineMs: READY_DEADLINE_MS };
    const outcome = await this.#lend(worker => worker.ask(limits, { remove: [] }));
    return outcome.exitCode === 0;
  }

  /** Closes all workers; busy ones finish their call first. */
  close(): void {
    clearInterval(this.#sweep);
    for (const { process } of [...this.#idle, ...this.#busy, ...this.#holding]) process.close();
    this.#reaping?.close();
  }

  #start(): Member {
    const process = new WorkerProcess(OWN_PROGRAM, this.#env, true, problem => this.#health.note(problem));
    return { process, looked: 0, since: performance.now(), wantedMs: 0, network: () => '', rested: false };
  }

  #hasAny(): boolean {
    return [...this.#idle, ...this.#busy, ...this.#holding].some(({ process }) => process.usable);
  }

  /** A worker; undefined if none can be had. */
  #take(network: () => string): Promise<Member | undefined> {
    const free = this.#find();
    if (free) return Promise.resolve(free);
    if (this.problem !== undefined) return Promise.resolve(undefined);
    return new Promise(take => this.#waiting.push({ since: performance.now(), network, take }));
  }

  /** The worker that was idle for the shortest time, so that the others can time out; a new one if the limit allows. */
  #find(): Member | undefined {
    this.#idle = this.#idle.filter(({ process }) => process.usable);
    return this.#idle.pop() ?? (this.#mayStart() ? this.#start() : undefined);
  }

  #mayStart(): boolean {
    if (this.problem !== undefined) return false;
    const { workers } = this.#limits;
    const atWork = this.#busy.size - this.#stuck().length;
    return atWork < workers && this.#busy.size + this.#holding.size < workers + SPARE;
  }

  /**
   * Those whose calls take long without need of a processor. One that gets none on a busy node is not helped by another worker, nor is one
   * that is still starting.
   */
  #stuck(): Member[] {
    const now = performance.now();
    return [...this.#busy].filter(({ process, since, wantedMs }) => {
      const forMs = now - since;
      if (!process.serves || forMs < STUCK_MS) return false;
      return wantedCpuMs(process.pid) - wantedMs < AT_WORK_SHARE * forMs;
    });
  }

  /**
   * Whether the call would wait for others that wait for something themselves: all that there may be, or too many of its network. While calls
   * end, they only take their time: on a busy node all wait for the kernel's locks, and a call of its own would be one more.
   */
  #isHeldUp(network: () => string): boolean {
    if (this.#idle.length > 0 && this.#busy.size < SPARE_OF_ONE) return false;
    const stillSince = performance.now() - WAIT_MS;
    const stuck = this.#stuck();
    const isFull = this.#busy.size + this.#holding.size >= this.#limits.workers + SPARE;
    if (isFull && stuck.length === this.#busy.size && this.#movedAt < stillSince) return true;
    if (stuck.length < SPARE_OF_ONE || (this.#moved.get(network()) ?? 0) >= stillSince) return false;
    return stuck.filter(one => one.network() === network()).length >= SPARE_OF_ONE;
  }

  #giveBack(member: Member): void {
    // Of each network only while many are busy: a request may be long.
    if (this.#busy.size >= SPARE_OF_ONE) this.#moved.set(member.network(), performance.now());
    else this.#moved.clear();
    this.#busy.delete(member);
    member.since = performance.now();
    this.#movedAt = member.since;
    const { process } = member;
    if (process.usable && process.holds) this.#holding.add(member);
    else if (process.usable && !this.#hasServedLongEnough(member)) this.#idle.push(member);
    else process.close();
    this.#serveWaiting();
  }

  #serveWaiting(): void {
    for (let [next] = this.#waiting; next !== undefined; [next] = this.#waiting) {
      const isHeldUp = this.#isHeldUp(next.network);
      const free = isHeldUp ? undefined : this.#find();
      if (free === undefined && !isHeldUp) return;
      // Busy from now on, not only once the waiting call resumes.
      if (free) this.#busy.add(free);
      this.#waiting.shift();
      next.take(free);
    }
  }

  #hasServedLongEnough(member: Member): boolean {
    const { pid, served } = member.process;
    if (served >= this.#limits.calls) return true;
    if (served < member.looked + LOOK_EVERY) return false;
    member.looked = served;
    return residentBytes(pid) > this.#limits.bytes;
  }

  #tidy(): void {
    this.#tryAgain();
    this.#serveWaiting();
    const lateSince = performance.now() - WAIT_MS;
    const isStill = this.#movedAt < lateSince && this.#stuck().length === this.#busy.size;
    for (let [next] = this.#waiting; next !== undefined; [next] = this.#waiting) {
      if (this.problem === undefined && !(isStill && next.since < lateSince)) break;
      this.#waiting.shift();
      next.take(undefined);
    }
    this.#letGoOfForgotten();
    this.#shrink();
  }

  /** If no worker starts, tries to start one again and again. */
  #tryAgain(): void {
    this.#idle = this.#idle.filter(({ process }) => process.usable);
    this.#health.judge(this.#hasAny());
    if (this.problem === undefined || this.#trying) return;
    this.#trying = true;
    const member = this.#start();
    void member.process.ask({ deadlineMs: READY_DEADLINE_MS }, { remove: [] }).then(({ exitCode }) => {
      this.#trying = false;
      if (exitCode === 0) this.#idle.push(member);
    });
  }

  /** The process that should have asked for the deferred removals is gone. The workers run them when they are closed. */
  #letGoOfForgotten(): void {
    const forgottenSince = performance.now() - HOLD_MS;
    for (const member of this.#holding) {
      if (member.process.usable && member.since > forgottenSince) continue;
      this.#holding.delete(member);
      member.process.close();
    }
  }

  #shrink(): void {
    const until = performance.now() - this.#limits.idleMs;
    if (this.#reaping && !this.#removing && this.#removedAt < until) {
      this.#reaping.close();
      this.#reaping = undefined;
    }
    while (this.state.workers > 1) {
      const [oldest] = this.#idle;
      if (oldest === undefined || oldest.since > until) return;
      this.#idle.shift();
      oldest.process.close();
    }
    const [last] = this.#idle;
    if (last && !last.rested && last.since <= until) this.#rest(last);
  }

  /**
   * No request came for a while, so free memory here and in the last worker. A worker that has served many calls keeps three
   * times the memory of a new one (60 instead of 20 MiB), so it is replaced by a new one, which frees its own later.
   */
  #rest(member: Member): void {
    rest();
    if (member.process.served >= CALLS_THAT_WEIGH) {
      this.#idle = [this.#start()];
      member.process.close();
      return;
    }
    member.rested = true;
    void member.process.ask({ deadlineMs: READY_DEADLINE_MS }, { rest: true });
  }

  async #removeNow(indexes: readonly number[]): Promise<boolean> {
    if (indexes.length === 0) return true;
    if (!this.#reaping?.usable) this.#reaping = new WorkerProcess(OWN_PROGRAM, this.#env, true);
    this.#removing = true;
    const outcome = await this.#reaping.ask({ deadlineMs: REMOVE_DEADLINE_MS }, { remove: indexes });
    this.#removing = false;
    this.#removedAt = performance.now();
    return outcome.exitCode === 0;
  }
}

/** The network of a call; asked only where many calls take long. */
function networkOf({ stdin }: Pick<WorkerCall, 'stdin'>): () => string {
  let found: string | undefined;
  return () => (found ??= stdin === undefined ? '' : networkIn(stdin));
}

const PAGE_BYTES = 4096;

/** Resident bytes; 0 if the process does not exist. Second column of /proc/<pid>/statm: resident pages. */
function residentBytes(pid: number | undefined): number {
  return Number(tryRead(`/proc/${pid}/statm`)?.split(' ')[1] ?? 0) * PAGE_BYTES;
}

/**
 * Milliseconds for which a process has run, or waited for a processor to run on (schedstat of its first thread).
 * @returns 0 if the kernel does not say
 */
function wantedCpuMs(pid: number | undefined): number {
  const [, ran = '0', waited = '0'] = /^(\d+) (\d+)/.exec(tryRead(`/proc/${pid}/schedstat`) ?? '') ?? [];
  return (Number(ran) + Number(waited)) / 1e6;
}

/** Deletes devices of the host; false if that failed. */
type RemoveDevices = (indexes: readonly number[]) => Promise<boolean>;

/**
 * Deletes devices. All requests that arrive while a deletion is in progress are combined into the next one: a deletion costs the
 * kernel a grace period, and us a process, however many devices it is of.
 */
class DeviceRemover {
  readonly #remove: RemoveDevices;
  #next: { indexes: number[]; done: Promise<boolean> } | undefined;
  #underWay: Promise<unknown> = Promise.resolve();

  constructor(remove: RemoveDevices) {
    this.#remove = remove;
  }

  /** @returns whether the devices were deleted, once they are */
  remove(indexes: readonly number[]): Promise<boolean> {
    if (this.#next) {
      this.#next.indexes.push(...indexes);
      return this.#next.done;
    }
    const all = [...indexes];
    const done = this.#underWay.then(() => {
      this.#next = undefined;
      return this.#remove(all);
    });
    this.#next = { indexes: all, done };
    this.#underWay = done.catch(() => {});
    return done;
  }
}

/** How long a daemon that cannot start a worker waits for that to change. */
const GIVE_UP_MS = 10_000;

/** Notified about the workers' health. */
interface HealthEvents {
  /** No worker starts. */
  failing(problem: string): void;
  /** Workers start again. */
  recovered(): void;
  /** No worker has started for so long that waiting longer is pointless. */
  hopeless(problem: string): void;
}

/** What is known from the workers' starts so far. */
class WorkerHealth {
  readonly #events: HealthEvents;
  #problem: string | undefined;
  #since = performance.now();
  #isHopeless = false;

  constructor(events: HealthEvents) {
    this.#events = events;
  }

  /** Why the last worker failed to start; undefined if it started. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Notes that a worker serves, or that it ended before it could. */
  note(problem: string | undefined): void {
    if (problem === undefined) {
      if (this.#problem !== undefined) this.#events.recovered();
      this.#problem = undefined;
      return;
    }
    if (this.#problem === undefined) this.#events.failing(problem);
    this.#problem = problem;
  }

  /** Gives up if no worker serves for too long. @param served whether a worker serves now */
  judge(served: boolean): void {
    if (this.#problem === undefined || served) {
      this.#since = performance.now();
      return;
    }
    if (this.#isHopeless || performance.now() - this.#since < GIVE_UP_MS) return;
    this.#isHopeless = true;
    this.#events.hopeless(this.#problem);
  }
}
