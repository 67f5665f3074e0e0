// Which requests does the daemon take, when do they begin, and which worker serves them?

import { isOwnExecutable, isOwnPlugin, parsePluginDirs } from '../chain/config/find-plugin.ts';
import type { Invocation } from '../chain/run/exec-plugin.ts';
import type { AnswerOf } from '../cli/answers/kinds.ts';
import { networkIn, objectIn } from '../cni/invocation.ts';
import { ipamTypeIn } from '../cni/plugin-about.ts';
import { wantedCpuMs } from '../files/process-stat.ts';
import { tryRead } from '../files/read-file.ts';
import { rest } from '../sys/process.ts';
import { startTimer, type Timer } from '../wait.ts';
import { type Limits, type WorkerCall, WorkerProcess, type WorkerSource } from '../worker/process.ts';

/** How many requests are served at the same time, and when a worker is replaced. */
export interface PoolLimits {
  /** Requests at work at the same time, each of which may have a worker. Those that wait for something else do not count. */
  readonly workers: number;
  /** Calls after which a worker is replaced. */
  readonly calls: number;
  /** Resident bytes above which a worker is replaced. */
  readonly bytes: number;
  /** Milliseconds after which an idle worker is ended; one always stays. */
  readonly idleMs: number;
}

export const POOL_LIMITS: PoolLimits = { workers: 4, calls: 5_000, bytes: 192 * 1024 * 1024, idleMs: 30_000 };

export interface PoolState extends NonNullable<AnswerOf<'DaemonState'>['pool']> {
  /** Requests that were begun, that wait, and that were answered so far. */
  readonly running: number;
  readonly queued: number;
  readonly served: number;
}

/** Path of the running program, valid even after another file has taken its name. */
const OWN_PROGRAM = '/proc/self/exe';
/** Number of calls after which an idle worker is replaced rather than kept. */
const CALLS_THAT_WEIGH = 200;
/** How often a worker's memory is checked, in calls. */
const LOOK_EVERY = 50;
const READY_DEADLINE_MS = 10_000;
/** A container whose call was answered so long ago gets its next call sooner than others their first. */
const UNDER_WAY_MS = 10_000;
/** Longer than a netlink socket waits for its answer. */
const REMOVE_DEADLINE_MS = 40_000;
/** A request that takes longer waits for something: a plugin that it has started, a server, a lock. Another one must not wait for that. */
const STUCK_MS = 500;
/**
 * One that has no worker for this time waits for something that needs no processor of ours, as for the API server: it is not at work, and others
 * begin.
 */
const AWAY_MS = 10;
/** Requests that may wait for something: all, and of one network, whose server or foreign plugin may hang. */
interface Spare {
  readonly all: number;
  readonly ofOne: number;
}
/** With a worker, which takes memory. */
const WITH_WORKER: Spare = { all: 12, ofOne: 8 };
/** Without one, as those that have started a foreign plugin: they take next to nothing. */
const WITHOUT_WORKER: Spare = { all: 256, ofOne: 64 };
/** Requests whose devices the kernel deletes, which are not at work until it has. Their workers serve others of the network. */
const REMOVING = 8;
/** A request that has waited for this time may begin though twice as many wait for something: its client would not have needed longer. */
const PATIENCE_MS = 1_000;
/** Where nothing ends for this time and all wait for something, further requests are declined. */
const STANDSTILL_MS = 1_000;
/** Maximum number of requests that wait. */
const QUEUE = 1_024;
/** A long call that had or wanted a processor for more than this part of its time waits for nothing else. */
const AT_WORK_SHARE = 0.5;
/** A worker's deferred removals run after this time even without a request to run them. It is longer than any call takes. */
const HOLD_MS = 15 * 60_000;
/** How often is looked after what waits, or whether a worker starts again; and at most, how often after workers that are idle. */
const PRESSING_MS = 250;
const CALM_MS = 5_000;

interface Member {
  readonly process: WorkerProcess;
  /** Number of calls that it had answered when its memory was last checked. */
  looked: number;
  /** When its last call ended. */
  since: number;
  /** It has freed the memory that its calls left behind. */
  rested: boolean;
  /** Of its last call. */
  network: string;
}

/** A request that was begun. */
interface Running extends Asker {
  /** Work of the daemon itself, which no client has asked for. */
  readonly isOwn: boolean;
  /** The worker that serves it now. */
  member: Member | undefined;
  /** Its devices are being deleted: it needs no processor until they are gone. */
  isRemoving: boolean;
  /** When it got that worker, or gave the last one back. */
  since: number;
  /** Milliseconds for which the worker had had or wanted a processor then. */
  wantedMs: number;
}

export interface Asker {
  /** Empty for those of no network. */
  readonly network: string;
  /** The container and the verb, if it is one of several calls that a runtime makes one by one. */
  readonly series?: string;
}

/** The asker of one plugin call: a runtime calls the plugins of a list one by one. */
export function askerOf({ CNI_COMMAND, CNI_CONTAINERID }: Invocation['env'], stdin: string): Asker {
  const series = CNI_CONTAINERID ? { series: `${CNI_COMMAND} ${CNI_CONTAINERID}` } : {};
  return { network: networkIn(stdin), ...series };
}

interface Waiter extends Asker {
  readonly since: number;
  begin(): void;
}

/** A request that was begun: it has workers whenever it needs them. */
export interface Turn extends WorkerSource {
  leave(): void;
}

/**
 * The one queue of the daemon, and workers that serve the calls of any chain, one at a time each. A request waits here until it begins, and for
 * nothing after that. What waits is always served; what would wait for others that wait for something themselves is declined at once.
 * A worker that has ended is replaced when another one is needed. One that holds deferred removals of a chain serves other DELs of its
 * network, rather than that a new worker starts, which costs as much processor time as two pods.
 */
export class WorkerPool implements WorkerSource {
  readonly #env: Invocation['env'];
  readonly #reaper: DeviceRemover;
  readonly #health: WorkerHealth;
  #limits: PoolLimits;
  #sweep: Timer | undefined;
  #sweepsAt = Infinity;
  #idle: Member[] = [];
  readonly #busy = new Set<Member>();
  readonly #holding = new Set<Member>();
  readonly #running = new Set<Running>();
  readonly #waiting = new Set<Waiter>();
  /** Requests that were begun, and wait for a free worker; what wakes them. */
  readonly #borrowers = new Map<Running, () => void>();
  #served = 0;
  #reaping: WorkerProcess | undefined;
  #removing = false;
  #removedAt = 0;
  #trying = false;
  /** When a request last ended. */
  #movedAt = 0;
  /** The same by network, while many run. */
  readonly #moved = new Map<string, number>();
  /** When the last call of a series was answered. */
  readonly #underWay = new Map<string, number>();

  constructor(env: Invocation['env'], limits: PoolLimits, events: HealthEvents) {
    this.#env = env;
    this.#limits = limits;
    this.#health = new WorkerHealth(events);
    this.#reaper = new DeviceRemover(indexes => this.#removeNow(indexes));
    this.#idle.push(this.#start());
    this.#tidyWithin(PRESSING_MS);
  }

  get state(): PoolState {
    const busy = this.#busy.size + this.#holding.size;
    const running = [...this.#running].filter(({ isOwn }) => !isOwn).length;
    const requests = { running, queued: this.#waiting.size, served: this.#served };
    return { workers: busy + this.#idle.length, busy, ...requests };
  }

  /** Why no call can be served now; undefined if calls can be. */
  get problem(): string | undefined {
    const { problem } = this.#health;
    return problem === undefined || this.#hasAny() ? undefined : `cannot start a worker: ${problem}`;
  }

  /** New limits hold at once for what waits. */
  set limits(limits: PoolLimits) {
    this.#limits = limits;
    this.#serveWaiting();
  }

  /**
   * Decides about a request by what runs and waits now.
   * @returns undefined if it is declined: that is known at once, and what waits is never declined
   */
  enter(asker: Asker): Turn | Promise<Turn> | undefined {
    if (this.#mayBegin({ ...asker, since: performance.now() })) return this.#begin(asker);
    return this.#isHeldUp(asker.network) ? undefined : this.#wait(asker);
  }

  /** For work of the daemon itself: each use of a worker is a request. */
  async use<T>(
    call: Pick<WorkerCall, 'stdin'>,
    work: (worker: WorkerProcess) => Promise<T>,
    which?: WorkerProcess,
  ): Promise<T> {
    const network = call.stdin === undefined ? '' : networkIn(call.stdin);
    const mayBegin = which !== undefined || this.#mayBegin({ network, since: performance.now() });
    const turn = mayBegin ? this.#begin({ network }, true) : await this.#wait({ network }, true);
    try {
      return await turn.use({ path: '', env: {}, ...call }, work, which);
    } finally {
      turn.leave();
    }
  }

  remove(indexes: readonly number[], _limits: Limits): Promise<boolean> {
    return this.#reaper.remove(indexes);
  }

  #wait(asker: Asker, isOwn = false): Promise<Turn> {
    return new Promise(resolve => {
      const begin = () => resolve(this.#begin(asker, isOwn));
      this.#waiting.add({ ...asker, since: performance.now(), begin });
      this.#serveWithinMoment();
    });
  }

  #begin(asker: Asker, isOwn = false): Turn {
    const nothingYet = { isRemoving: false, member: undefined, wantedMs: 0 };
    const request: Running = { ...asker, isOwn, ...nothingYet, since: performance.now() };
    this.#running.add(request);
    this.#serveWithinMoment();
    return {
      use: (call, work, which) => this.#lend(request, call, work, which),
      remove: indexes => this.#removeFor(request, indexes),
      leave: () => this.#end(request),
    };
  }

  #end(request: Running): void {
    if (!this.#running.delete(request)) return;
    if (!request.isOwn) this.#served += 1;
    this.#movedAt = performance.now();
    if (request.series) this.#underWay.set(request.series, this.#movedAt);
    // Of each network only while many run: a list of networks may be long.
    if (this.#running.size >= WITH_WORKER.ofOne) this.#moved.set(request.network, this.#movedAt);
    else this.#moved.clear();
    this.#serveWaiting();
  }

  /** Gives the request's turn to others until its devices are deleted; theirs go into the next deletion. */
  async #removeFor(request: Running, indexes: readonly number[]): Promise<boolean> {
    request.isRemoving = true;
    this.#serveWaiting();
    try {
      return await this.#reaper.remove(indexes);
    } finally {
      Object.assign(request, { isRemoving: false, since: performance.now() });
    }
  }

  async #lend<T>(
    request: Running,
    call: WorkerCall,
    work: (worker: WorkerProcess) => Promise<T>,
    which: WorkerProcess | undefined,
  ): Promise<T> {
    const held = [...this.#holding].find(({ process }) => process === which);
    // It is serving another call, or it has ended. In both cases it answers in order.
    if (which !== undefined && held === undefined) return work(which).finally(() => this.#letGoOf(which));
    if (held === undefined) await this.#untilFree(request);
    const member = held ?? this.#find(request.network, call);
    if (member === undefined) return work(new WorkerProcess({ absent: this.problem ?? '' }, this.#env));
    this.#holding.delete(member);
    this.#busy.add(member);
    Object.assign(member, { rested: false, network: request.network });
    Object.assign(request, { member, since: performance.now(), wantedMs: wantedCpuMs(member.process.pid) });
    try {
      return await work(member.process);
    } finally {
      Object.assign(request, { member: undefined, since: performance.now() });
      this.#giveBack(member);
      this.#serveWithinMoment();
    }
  }

  /** What waits may begin once those that have no worker count as away. */
  #serveWithinMoment(): void {
    if (this.#waiting.size > 0) this.#tidyWithin(AWAY_MS + 1);
  }

  /**
   * A request that comes back from elsewhere finds others at work: it gets the next free worker, rather than that one more starts, which on a busy
   * node would delay all. Workers that wait for something themselves do not count, so that it never waits for those.
   */
  async #untilFree(request: Running): Promise<void> {
    const areAtWork = () => this.#busy.size - this.#stuck(STUCK_MS).filter(({ member }) => member).length;
    while (this.#idle.length === 0 && areAtWork() >= this.#limits.workers) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#borrowers.set(request, resolve);
      const timer = startTimer(resolve, PRESSING_MS);
      await promise;
      clearTimeout(timer);
      this.#borrowers.delete(request);
    }
  }

  async ready(): Promise<boolean> {
    const limits = { deadlineMs: READY_DEADLINE_MS };
    const outcome = await this.use({}, worker => worker.ask(limits, { remove: [] }));
    return outcome.exitCode === 0;
  }

  /** Closes all workers; busy ones finish their call first. */
  close(): void {
    this.#sweepsAt = 0;
    clearTimeout(this.#sweep);
    for (const { process } of [...this.#idle, ...this.#busy, ...this.#holding]) process.close();
    this.#reaping?.close();
  }

  #start(): Member {
    const process = new WorkerProcess(OWN_PROGRAM, this.#env, true, problem => {
      this.#health.note(problem);
      if (problem !== undefined) this.#tidyWithin(PRESSING_MS);
    });
    return { process, looked: 0, since: performance.now(), rested: false, network: '' };
  }

  #hasAny(): boolean {
    return [...this.#idle, ...this.#busy, ...this.#holding].some(({ process }) => process.usable);
  }

  /**
   * The worker that was idle for the shortest time, so that the others can time out; then, for a call that nothing holds up, one that holds
   * removals of the network; a new one otherwise.
   */
  #find(network: string, call: WorkerCall): Member | undefined {
    this.#idle = this.#idle.filter(({ process }) => process.usable);
    const isOf = (one: Member) => one.process.usable && one.network === network;
    const found = this.#idle.pop() ?? (isPrompt(call) ? [...this.#holding].find(isOf) : undefined);
    return found ?? (this.problem === undefined ? this.#start() : undefined);
  }

  /** Whether there is room: fewer are at work than may be, and not too many wait for something, of all and of this network. */
  #mayBegin({ network, since }: Pick<Waiter, 'network' | 'since'>, stuck?: readonly Running[]): boolean {
    const { workers } = this.#limits;
    if (this.#running.size < workers || this.problem !== undefined) return true;
    const waiting = stuck ?? this.#stuck(AWAY_MS);
    const times = performance.now() - since < PATIENCE_MS ? 1 : 2;
    const removing = [...this.#running].filter(({ isRemoving }) => isRemoving).length;
    const atWork = this.#running.size - waiting.length - Math.min(removing, REMOVING);
    return atWork < workers && !isFull(waiting, network, times);
  }

  /**
   * Those that take long without need of a processor. One that gets none on a busy node is not helped by others that begin.
   * @param awayMs of one without a worker
   */
  #stuck(awayMs: number): Running[] {
    const now = performance.now();
    return [...this.#running].filter(request => {
      const { isRemoving, member, since, wantedMs } = request;
      if (isRemoving || this.#borrowers.has(request)) return false;
      const forMs = now - since;
      if (member === undefined) return forMs >= awayMs;
      if (forMs < STUCK_MS) return false;
      const { serves, pid } = member.process;
      return serves && wantedCpuMs(pid) - wantedMs < AT_WORK_SHARE * forMs;
    });
  }

  /**
   * Whether a request would wait for others that wait for something themselves: all, or too many of its network. While they end, they only
   * take their time: on a busy node all wait for the kernel's locks, and a process of its own would be one more.
   */
  #isHeldUp(network: string): boolean {
    if (this.#waiting.size >= QUEUE) return true;
    const stuck = this.#stuck(STUCK_MS);
    const stillSince = performance.now() - STANDSTILL_MS;
    if (stuck.length === this.#running.size && isFull(stuck, undefined) && this.#movedAt < stillSince)
      return true;
    return isFull(stuck, network) && (this.#moved.get(network) ?? 0) < stillSince;
  }

  #giveBack(member: Member): void {
    this.#busy.delete(member);
    member.since = performance.now();
    const { process } = member;
    if (process.usable && process.holds) this.#holding.add(member);
    else if (process.usable && !this.#hasServedLongEnough(member)) this.#idle.push(member);
    else process.close();
    const [first] = this.#borrowers;
    if (first === undefined) return;
    const [borrower, wake] = first;
    this.#borrowers.delete(borrower);
    wake();
  }

  /** A worker may have been given back before it had done what it held. */
  #letGoOf(process: WorkerProcess): void {
    const member = [...this.#holding].find(one => one.process === process);
    if (member === undefined || process.holds) return;
    this.#holding.delete(member);
    this.#giveBack(member);
  }

  #serveWaiting(): void {
    if (this.#waiting.size === 0) return;
    const stuck = this.#stuck(AWAY_MS);
    // What has begun ends first: its next call comes after the answer to the last, so that it would wait for all others each time.
    const isUnderWay = ({ series = '' }: Waiter) => this.#underWay.has(series);
    const inTurn = [...this.#waiting].sort((a, b) => Number(isUnderWay(b)) - Number(isUnderWay(a)));
    for (const waiter of inTurn) {
      if (!this.#mayBegin(waiter, stuck)) continue;
      this.#waiting.delete(waiter);
      waiter.begin();
    }
  }

  #hasServedLongEnough(member: Member): boolean {
    const { pid, served } = member.process;
    if (served >= this.#limits.calls) return true;
    if (served < member.looked + LOOK_EVERY) return false;
    member.looked = served;
    // The second column has the resident pages; there is none if the process does not exist.
    const pages = Number(tryRead(`/proc/${pid}/statm`)?.split(' ')[1] ?? 0);
    return pages * PAGE_BYTES > this.#limits.bytes;
  }

  /** A daemon at rest costs what its wakes cost, so it wakes seldom while nothing waits. */
  #tidyWithin(ms: number): void {
    const at = performance.now() + ms;
    if (this.#sweepsAt <= at) return;
    this.#sweepsAt = at;
    clearTimeout(this.#sweep);
    this.#sweep = startTimer(() => {
      this.#sweepsAt = Infinity;
      this.#tidy();
      const isPressing = this.#waiting.size > 0 || this.problem !== undefined;
      // A quarter, so that an idle worker is ended about when it should be.
      const calmMs = Math.min(CALM_MS, Math.max(PRESSING_MS, this.#limits.idleMs / 4));
      this.#tidyWithin(isPressing ? PRESSING_MS : calmMs);
    }, ms);
    this.#sweep.unref();
  }

  #tidy(): void {
    this.#tryAgain();
    const until = performance.now() - UNDER_WAY_MS;
    for (const [series, at] of this.#underWay) if (at < until) this.#underWay.delete(series);
    this.#serveWaiting();
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
    const limits = { deadlineMs: REMOVE_DEADLINE_MS };
    const lone = this.#findLone();
    if (lone)
      return (await this.use({}, worker => worker.ask(limits, { remove: indexes }), lone)).exitCode === 0;
    if (!this.#reaping?.usable) this.#reaping = new WorkerProcess(OWN_PROGRAM, this.#env, true);
    this.#removing = true;
    const outcome = await this.#reaping.ask(limits, { remove: indexes });
    this.#removing = false;
    this.#removedAt = performance.now();
    return outcome.exitCode === 0;
  }

  /**
   * The worker that waits for a deletion while nothing else is asked for: it can delete the devices itself. Beside other requests a process of
   * its own does, so that none waits for the kernel; to start that costs several times as much as the DEL of a single pod.
   */
  #findLone(): WorkerProcess | undefined {
    const [holder, ...others] = this.#holding;
    const isLone = this.#running.size === 1 && this.#waiting.size === 0 && others.length === 0;
    return isLone && holder?.process.usable ? holder.process : undefined;
  }
}

/**
 * Whether a call may be served by a worker that another chain of the network needs again in a moment: a foreign plugin that hangs there, or the
 * client of an ADD that goes, which ends the worker, would be that chain's failure.
 */
function isPrompt({ env, stdin = '' }: WorkerCall): boolean {
  if (env.CNI_COMMAND !== 'DEL') return false;
  const type = ipamTypeIn(objectIn(stdin) ?? {});
  if (type === undefined) return true;
  return isOwnPlugin(type, { pluginDirs: parsePluginDirs(env.CNI_PATH ?? '') }, isOwnExecutable);
}

/** Whether no further request may wait for something. @param network without one, of all networks */
function isFull(stuck: readonly Running[], network: string | undefined, times = 1): boolean {
  return [true, false].some(hasWorker => {
    const { all, ofOne } = hasWorker ? WITH_WORKER : WITHOUT_WORKER;
    const those = stuck.filter(({ member }) => (member !== undefined) === hasWorker);
    const own = those.filter(one => one.network === network);
    return those.length >= all * times || own.length >= ofOne * times;
  });
}

const PAGE_BYTES = 4096;

/**
 * Deletes devices. All requests that arrive while a deletion is in progress are combined into the next one: a deletion costs the
 * kernel a grace period, and us a process, however many devices it is of.
 */
class DeviceRemover {
  readonly #remove: (indexes: readonly number[]) => Promise<boolean>;
  #next: { indexes: number[]; done: Promise<boolean> } | undefined;
  #underWay: Promise<unknown> = Promise.resolve();

  /** @param remove deletes devices of the host; false if that failed */
  constructor(remove: (indexes: readonly number[]) => Promise<boolean>) {
    this.#remove = remove;
  }

  /** @returns whether the devices were deleted, once they are */
  remove(indexes: readonly number[]): Promise<boolean> {
    // Most plugins have none to delete, and need not wait for the deletion that is in progress.
    if (indexes.length === 0) return Promise.resolve(true);
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

interface HealthEvents {
  failing(problem: string): void;
  recovered(): void;
  /** No worker has started for so long that waiting longer is pointless. */
  hopeless(problem: string): void;
}

/** What is known from the workers' starts so far. */
class WorkerHealth {
  readonly #events: HealthEvents;
  /** Why the last worker failed to start; undefined if it started. */
  problem: string | undefined;
  #since = performance.now();
  #isHopeless = false;

  constructor(events: HealthEvents) {
    this.#events = events;
  }

  /** Notes that a worker serves, or that it ended before it could. */
  note(problem: string | undefined): void {
    const before = this.problem;
    if (problem === undefined && before !== undefined) this.#events.recovered();
    if (problem !== undefined && before === undefined) this.#events.failing(problem);
    this.problem = problem;
  }

  /** Gives up if no worker serves for too long. @param served whether a worker serves now */
  judge(served: boolean): void {
    if (this.problem === undefined || served) {
      this.#since = performance.now();
      return;
    }
    if (this.#isHopeless || performance.now() - this.#since < GIVE_UP_MS) return;
    this.#isHopeless = true;
    this.#events.hopeless(this.problem);
  }
}
