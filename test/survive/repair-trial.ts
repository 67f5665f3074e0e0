// What remains if a daemon dies in the middle of a repair, at any of its requests or of its worker's?
import { existsSync, readFileSync } from 'node:fs';
import { type Chain, fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import type { Daemon } from '../helpers/daemon.ts';
import { type Container, createLab, type Lab, type Row } from '../helpers/netns.ts';
import { until } from '../helpers/until.ts';
import { startWatcher } from '../helpers/watched-host.ts';
import { parseCalls, WATCHED } from './calls.ts';
import { CAP, SOMAXCONN } from './ground.ts';
import { findPoints } from './points.ts';
import { findDifferences, type State, settledState, stateReader } from './state.ts';
import { attachTracer } from './strace.ts';
import { happenedIn, LATE_NEWS_MS, OUTLIVE_MS } from './trial.ts';
import { end, hasEnded, signal, workerOf } from './victims.ts';

/** Who dies: the daemon before a request of its own, or before one of its worker, together with the worker or not. */
const DEATHS = ['daemon killed', 'both killed', 'worker outlives'] as const;

/** One death. */
export interface RepairPoint {
  readonly death: (typeof DEATHS)[number];
  readonly syscall: string;
  readonly path?: string;
  /** Which of those calls, from 1. */
  readonly nth: number;
  /** The request, as printed by strace. */
  readonly what: string;
}

/** A repair that takes long, beside other programs, is shared by two workers. */
const COUNTS = 10;
/** The timer is not to interfere. */
const SETTINGS = { watch: 'repair', watchSeconds: 3600, workers: 1 };
const OF_THE_TEST = /^file daemon\.(json|log)$/;
/** Repairs that follow another one wait a second. */
const REPAIRED_WITHIN_MS = 30_000;

/** A fake host with an attachment, and a daemon that has repaired it once. */
export class RepairedHost {
  readonly #lab: Lab;
  readonly #chain: Chain;
  readonly #own: Container;
  readonly #read: () => Promise<State>;
  readonly #absent: State;
  #present: State = [];
  /** The host's end of the attachment. */
  #device = '';
  #daemon: Daemon | undefined;

  private constructor(lab: Lab, chain: Chain, own: Container, read: () => Promise<State>, absent: State) {
    this.#lab = lab;
    this.#chain = chain;
    this.#own = own;
    this.#read = read;
    this.#absent = absent;
  }

  static async make(): Promise<RepairedHost> {
    const lab = await createLab();
    try {
      for (const key of ['net/ipv4/ip_forward', 'net/ipv6/conf/all/forwarding'])
        await lab.sysctl(lab.host, key, 1);
      const [own, neighbour] = [await lab.container(), await lab.container()];
      const chain = writeChain(lab, fullChain(lab));
      // With a neighbour, whose limits are no devices, so that fixed tables exist before and after.
      await chain.add(neighbour);
      const readAll = stateReader(lab, [own, neighbour], true);
      const read = async () => (await readAll()).filter(line => !OF_THE_TEST.test(line));
      await chain.add(own, { cap: CAP });
      const ended = await chain.run('del', own);
      if (ended.exitCode !== 0) throw new Error(`Cannot begin: DEL fails: ${ended.stderr}`);
      await lab.sysctl(own, 'net/core/somaxconn', SOMAXCONN);
      const absent = await settledState(read);
      const host = new RepairedHost(lab, chain, own, read, absent);
      const { interfaces } = await chain.add(own, { cap: CAP });
      host.#device = interfaces.find(({ name }: Row) => name.startsWith('veth')).name;
      host.#present = await settledState(read);
      await host.#restart();
      return host;
    } catch (error) {
      await lab.close();
      throw error;
    }
  }

  /** Every point of a repair, from a run without a death in which one worker did all of it. */
  async count(): Promise<RepairPoint[]> {
    for (let left = COUNTS; left > 0; left--) {
      const points = await this.#countOnce();
      if (childrenOf(this.#daemon?.pid ?? 0).length === 1) return points;
      // A daemon leaves alone what is damaged again each time.
      await this.#daemon?.stop();
      await this.#restart();
    }
    throw new Error(`Cannot count the requests of a repair: two workers shared it ${COUNTS} times`);
  }

  async #countOnce(): Promise<RepairPoint[]> {
    const { pid, worker } = await this.#processes();
    const tracers = [
      await attachTracer(pid, { syscalls: WATCHED }),
      await attachTracer(worker, { syscalls: WATCHED }),
    ];
    await this.#damage();
    await this.#untilRepaired();
    const [ofDaemon, ofWorker] = await Promise.all(
      tracers.map(async tracer => {
        await tracer.release();
        return parseCalls(tracer.lines.map(line => line.replaceAll(this.#lab.tmp, '{tmp}')));
      }),
    );
    const points = findPoints('add', { runner: ofDaemon ?? [], worker: ofWorker ?? [] });
    return points.flatMap(({ actor, strike, group, syscall, path, nth, what }): RepairPoint[] => {
      const place = { syscall, nth, what, ...(path === undefined ? {} : { path }) };
      if (strike === 'runner killed') return [{ ...place, death: 'daemon killed' }];
      if (actor !== 'worker' || group !== 'kernel') return [];
      return DEATHS.flatMap(death => (death === strike ? [{ ...place, death }] : []));
    });
  }

  /** Kills the daemon at a point. The next one has to complete the repair. @returns whether it happened, and what is wrong */
  async tryPoint({
    death,
    syscall,
    path,
    nth,
  }: RepairPoint): Promise<{ happened: boolean; wrong: string[] }> {
    const { pid, worker } = await this.#processes();
    const isOwn = death === 'daemon killed';
    const only = path === undefined ? {} : { path: path.replaceAll('{tmp}', this.#lab.tmp) };
    const what = isOwn ? 'signal=KILL' : 'signal=STOP';
    const tracer = await attachTracer(isOwn ? pid : worker, {
      syscalls: syscall,
      ...only,
      inject: { what, nth },
    });
    await this.#damage();
    const repaired = this.#untilRepaired().catch(() => {});
    await Promise.race([tracer.stopped, repaired.then(() => Bun.sleep(LATE_NEWS_MS))]);
    const happened = happenedIn(tracer);
    end(pid);
    if (death === 'both killed') end(worker);
    await tracer.release();
    const next = this.#restart();
    if (death === 'worker outlives') {
      await Bun.sleep(OUTLIVE_MS);
      signal(worker, 'SIGCONT');
    }
    const wrong: string[] = [];
    await next.catch(error => wrong.push(error.message));
    for (const victim of [pid, worker])
      if (!(await hasEnded(victim))) wrong.push(`process ${victim} is still there`);
    return { happened, wrong };
  }

  /** What a DEL leaves. */
  async findLeftovers(): Promise<string[]> {
    await this.#daemon?.stop();
    const { exitCode, stderr } = await this.#chain.run('del', this.#own);
    if (exitCode !== 0) return [`DEL fails: ${stderr}`];
    return findDifferences(this.#absent, await settledState(this.#read));
  }

  close(): Promise<void> {
    return this.#lab.close();
  }

  /** Starts a daemon, which repairs what it finds, and then once more, so that its worker runs. */
  async #restart(): Promise<void> {
    this.#daemon = await startWatcher(this.#lab, SETTINGS);
    await this.#untilRepaired();
    await this.#damage();
    await this.#untilRepaired();
  }

  async #processes(): Promise<{ readonly pid: number; readonly worker: number }> {
    const pid = this.#daemon?.pid ?? 0;
    return { pid, worker: await workerOf(pid) };
  }

  /** Damages whatever a plugin can put back, in few steps: the daemon acts after 50 ms. */
  async #damage(): Promise<void> {
    const { host } = this.#lab;
    await this.#lab.run(this.#own, [
      'sh',
      '-c',
      'ip route del default; ip -6 route del default; sysctl -qw net.core.somaxconn=7',
    ]);
    await this.#lab.run(host, [
      'sh',
      '-c',
      `nft flush ruleset; ip addr flush dev br0 scope global; tc qdisc del dev ${this.#device} root`,
    ]);
  }

  async #untilRepaired(): Promise<void> {
    let left: string[] = [];
    await until(
      async () => {
        left = findDifferences(this.#present, await this.#read());
        return left.length === 0;
      },
      { withinMs: REPAIRED_WITHIN_MS, everyMs: 100 },
    ).catch(() => {
      const file = `${this.#lab.tmp}/daemon.log`;
      const last = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').at(-1) : 'none';
      throw new Error(`not repaired: ${left.join('; ')}; the daemon's last line: ${last}`);
    });
  }
}
