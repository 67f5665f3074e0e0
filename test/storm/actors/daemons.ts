// What becomes of the daemon of a node?

import fs from 'node:fs';
import type { DaemonAct, Violation } from '../history.ts';
import { LETTERS } from '../networks.ts';
import { ENVIRONMENT, processes, signal, waitFor } from '../node.ts';
import type { Place } from '../place.ts';
import { OK, type Outcome, SKIPPED } from './outcome.ts';

const SOCKET = '/run/catena/catena.sock';
const START_MS = 10_000;
const STOP_MS = 30_000;
const LOOK_EVERY_MS = 250;
/** Several times the second that calls wait at most, on a busy machine, too: a timer of the daemon ends it. */
const STANDSTILL_MS = 3_000;

/** The daemons of one node: at most one is meant to serve. */
export class Daemons {
  readonly #place: Place;
  readonly #running = new Set<Bun.Subprocess>();
  #main: Bun.Subprocess | undefined;
  #repairs = false;

  constructor(place: Place) {
    this.#place = place;
  }

  /** Process ids of those that live. */
  get pids(): number[] {
    return [...this.#running].map(({ pid }) => pid);
  }

  get isServing(): boolean {
    return this.#main !== undefined;
  }

  /** Whether one repairs what others damage. */
  get repairs(): boolean {
    return this.isServing && this.#repairs;
  }

  async act(act: Exclude<DaemonAct['act'], 'freeze'>, watch = false): Promise<Outcome> {
    if (act === 'upgrade') {
      this.#place.upgrade();
      return OK;
    }
    if (act === 'start') return this.#main ? SKIPPED : this.#start(watch);
    if (this.#main === undefined) return SKIPPED;
    if (act === 'second') return this.#second();
    return act === 'kill' ? this.#kill(this.#main) : this.#stop(this.#main);
  }

  /** Stops it from running until `thaw` resolves. @returns false when there is none */
  async freeze(thaw: Promise<unknown>): Promise<Outcome> {
    const daemon = this.#main;
    if (daemon === undefined) return SKIPPED;
    signal(daemon.pid, 'SIGSTOP');
    await thaw;
    signal(daemon.pid, 'SIGCONT');
    return OK;
  }

  /** Ends those that cannot be asked: their directory was wiped. */
  async endAll(): Promise<readonly string[]> {
    const late: string[] = [];
    for (const daemon of [...this.#running]) {
      const { violations = [] } = await this.#stop(daemon);
      late.push(...violations.map(({ text }) => text));
    }
    return late;
  }

  /**
   * Whether calls wait in a daemon for one that hangs, until `end` resolves: while none ends. They get the
   * turn of what hangs after a second or two.
   */
  async findStandstill(end: Promise<unknown>): Promise<Violation[]> {
    let isOver = false;
    void end.then(() => {
      isOver = true;
    });
    let since = performance.now();
    for (let before = ''; !isOver; await Bun.sleep(LOOK_EVERY_MS)) {
      const state = await stateOf();
      const waiting = state?.queued ?? 0;
      const now = JSON.stringify([state?.served, state?.running, state?.declined]);
      if (waiting === 0 || now !== before) since = performance.now();
      before = now;
      if (performance.now() - since < STANDSTILL_MS) continue;
      return [{ rule: 'daemon: calls wait for one that hangs', text: JSON.stringify(state) }];
    }
    return [];
  }

  /** As at the end of a boot. */
  async killAll(): Promise<void> {
    for (const daemon of [...this.#running]) await this.#kill(daemon);
  }

  #spawn(watch = false): Bun.Subprocess {
    // Everything is scarce: one call that hangs has the turns and the worker that others need.
    const argv = [this.#place.catena, 'daemon', '--log', 'none', '--workers', '1'];
    if (watch) argv.push('--config', this.#place.repairing);
    const child = Bun.spawn(argv, {
      cwd: '/',
      // What other runtimes made does not say where its plugins are.
      env: { ...ENVIRONMENT, CNI_PATH: LETTERS.map(net => this.#place.bin(net)).join(':') },
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'ignore',
    });
    this.#running.add(child);
    void child.exited.then(() => {
      this.#running.delete(child);
      if (this.#main === child) this.#main = undefined;
    });
    return child;
  }

  async #start(watch: boolean): Promise<Outcome> {
    const child = this.#spawn(watch);
    this.#main = child;
    this.#repairs = watch;
    const ended = () => child.exitCode !== null || child.signalCode !== null;
    const isUp = await waitFor(() => ended() || answers(child.pid), START_MS);
    if (isUp && !ended()) return OK;
    const text = `it ${ended() ? `ended with ${child.exitCode}` : 'does not listen'}`;
    return { how: 'failed', violations: [{ rule: 'daemon: it does not start', text }] };
  }

  /** The one that listens goes on; the other one may end at once, or wait for its turn. */
  async #second(): Promise<Outcome> {
    const child = this.#spawn();
    await Promise.race([child.exited, Bun.sleep(300)]);
    if (child.exitCode === null) {
      signal(child.pid, 'SIGTERM');
      await waitFor(() => child.exitCode !== null || child.signalCode !== null, STOP_MS);
    }
    return OK;
  }

  async #kill(daemon: Bun.Subprocess): Promise<Outcome> {
    signal(daemon.pid, 'SIGKILL');
    await daemon.exited;
    return OK;
  }

  async #stop(daemon: Bun.Subprocess): Promise<Outcome> {
    signal(daemon.pid, 'SIGTERM');
    const ended = () => daemon.exitCode !== null || daemon.signalCode !== null;
    if (await waitFor(ended, STOP_MS)) return OK;
    signal(daemon.pid, 'SIGKILL');
    await daemon.exited;
    return { how: 'failed', violations: [{ rule: 'daemon: it does not end', text: `after ${STOP_MS} ms` }] };
  }
}

/** Workers are started before it listens. */
function answers(pid: number): boolean {
  return fs.existsSync(SOCKET) && processes().some(({ parent }) => parent === pid);
}

interface State {
  readonly running: number;
  readonly queued: number;
  readonly served: number;
  readonly declined: object;
  readonly pool: { readonly waiting: number };
}

/** Undefined if none answers now. */
async function stateOf(): Promise<State | undefined> {
  try {
    const asked = { unix: SOCKET, signal: AbortSignal.timeout(1_000) };
    return (await (await fetch('http://catena/v1/state', asked)).json()) as State;
  } catch {
    return undefined;
  }
}
