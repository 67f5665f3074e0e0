// Which worker serves the next call?
import { readFileSync } from 'node:fs';
import type { Invocation } from '../chain/exec-plugin.ts';
import type { WorkerSource } from '../worker/client.ts';
import { type Limits, WorkerProcess } from '../worker/process.ts';
import { Reaper } from './reaper.ts';

/** How large a pool may grow, and when a worker has served long enough. */
export interface PoolLimits {
  /** Workers at most, besides the one that deletes devices. */
  readonly workers: number;
  /** Calls after which a worker is replaced. */
  readonly calls: number;
  /** Resident bytes above which a worker is replaced. */
  readonly bytes: number;
  /** Milliseconds after which a worker without work goes; one always stays. */
  readonly idleMs: number;
}

/** Limits that hold unless told otherwise. */
export const POOL_LIMITS: PoolLimits = { workers: 4, calls: 5_000, bytes: 192 * 1024 * 1024, idleMs: 30_000 };

/** A pool in numbers. */
export interface PoolState {
  readonly workers: number;
  readonly busy: number;
  /** Calls that wait for a worker. */
  readonly waiting: number;
}

/** Path of the program that runs now, also after another one took its name. */
const OWN_PROGRAM = '/proc/self/exe';
/** Calls after which a worker that rests is better replaced. */
const CALLS_THAT_WEIGH = 200;
/** How often memory is looked at, in calls. */
const LOOK_EVERY = 50;
const READY_DEADLINE_MS = 10_000;
/** Longer than a netlink socket waits for its answer. */
const REMOVE_DEADLINE_MS = 40_000;
const PAGE_BYTES = 4096;

interface Member {
  readonly process: WorkerProcess;
  /** Calls that it had answered when its memory was looked at. */
  looked: number;
  readonly idleSince: number;
  /** It has given back the memory that its calls left. */
  rested: boolean;
}

/** Workers that serve calls of any chain, one at a time each. A worker that ends is replaced when it is missed. */
export class WorkerPool implements WorkerSource {
  readonly #env: Invocation['env'];
  readonly #reaper: Reaper;
  readonly #sweep: ReturnType<typeof setInterval>;
  #limits: PoolLimits;
  #idle: Member[] = [];
  #busy = new Set<Member>();
  #waiting: ((member: Member) => void)[] = [];
  #reaping: WorkerProcess | undefined;
  #removing = false;
  #removedAt = 0;

  constructor(env: Invocation['env'], limits: PoolLimits = POOL_LIMITS) {
    this.#env = env;
    this.#limits = limits;
    this.#reaper = new Reaper(indexes => this.#removeNow(indexes));
    this.#sweep = setInterval(() => this.#shrink(), 1_000);
    this.#sweep.unref();
    this.#idle.push(this.#start());
  }

  get state(): PoolState {
    const busy = this.#busy.size;
    return { workers: busy + this.#idle.length, busy, waiting: this.#waiting.length };
  }

  set limits(limits: PoolLimits) {
    this.#limits = limits;
  }

  use<T>(
    _invocation: Invocation,
    work: (worker: WorkerProcess) => Promise<T>,
    which?: WorkerProcess,
  ): Promise<T> {
    // It answers in turn, whoever else uses it.
    return which ? work(which) : this.#lend(work);
  }

  async #lend<T>(work: (worker: WorkerProcess) => Promise<T>): Promise<T> {
    const member = await this.#take();
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

  /** Lets all workers go; those that work finish first. */
  close(): void {
    clearInterval(this.#sweep);
    for (const { process } of [...this.#idle, ...this.#busy]) process.close();
    this.#reaping?.close();
  }

  #start(): Member {
    const process = new WorkerProcess(OWN_PROGRAM, this.#env, true);
    return { process, looked: 0, idleSince: performance.now(), rested: false };
  }

  /** The one that rested least, so that the others may go; a new one while there may be more. */
  #take(): Promise<Member> {
    this.#idle = this.#idle.filter(({ process }) => process.usable);
    const free = this.#idle.pop() ?? (this.#busy.size < this.#limits.workers ? this.#start() : undefined);
    if (free === undefined) return new Promise(resolve => this.#waiting.push(resolve));
    this.#busy.add(free);
    return Promise.resolve(free);
  }

  #giveBack(member: Member): void {
    this.#busy.delete(member);
    const fit = member.process.usable && !this.#hasServedLongEnough(member);
    if (!fit) member.process.close();
    const next = this.#waiting.shift();
    if (next === undefined) {
      if (fit) this.#idle.push({ ...member, idleSince: performance.now(), rested: false });
      return;
    }
    const successor = fit ? member : this.#start();
    this.#busy.add(successor);
    next(successor);
  }

  #hasServedLongEnough(member: Member): boolean {
    const { holds, pid, served } = member.process;
    if (holds) return false;
    if (served >= this.#limits.calls) return true;
    if (served < member.looked + LOOK_EVERY) return false;
    member.looked = served;
    return residentBytes(pid) > this.#limits.bytes;
  }

  #shrink(): void {
    const until = performance.now() - this.#limits.idleMs;
    if (this.#reaping && !this.#removing && this.#removedAt < until) {
      this.#reaping.close();
      this.#reaping = undefined;
    }
    while (this.state.workers > 1) {
      const [oldest] = this.#idle;
      if (oldest === undefined || oldest.idleSince > until || oldest.process.holds) return;
      this.#idle.shift();
      oldest.process.close();
    }
    const [last] = this.#idle;
    if (last && !last.rested && last.idleSince <= until) this.#rest(last);
  }

  /**
   * Nobody has asked for anything in a while: now is the time to collect garbage, here and in the last worker. One that has
   * served a lot keeps three times what a new one needs (60 to 20 MiB), so a new one takes its place.
   */
  #rest(member: Member): void {
    Bun.gc(true);
    if (member.process.served >= CALLS_THAT_WEIGH && !member.process.holds) {
      this.#idle = [{ ...this.#start(), rested: true }];
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

/** /proc/<pid>/statm, second column: pages in memory. */
function residentBytes(pid: number | undefined): number {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * PAGE_BYTES;
  } catch {
    return 0;
  }
}
