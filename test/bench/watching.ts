// How much processor time does a daemon need that watches many attachments, at rest and while rules change all the time, and how soon
// has it repaired all of them?
import { readFileSync } from 'node:fs';
import { type Chain, fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { runOk } from '../helpers/command.ts';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { type Lab, type Row, withHost } from '../helpers/netns.ts';
import { stateOf } from '../helpers/plugin-calls.ts';
import { until } from '../helpers/until.ts';
import { startWatcher } from '../helpers/watched-host.ts';
import { portOf } from './sides.ts';

/** Attachments that are made at the same time. */
const AT_ONCE = 4;
/** A new daemon compiles its code in the first rounds. */
const SETTLE_MS = 20_000;
/** For the checks of a new daemon, on a busy machine. */
const FIRST_WITHIN_MS = 10 * 60_000;
/** How often rules change, in milliseconds. */
const CHANGE_EVERY_MS = 100;

/** A round that cannot check all takes place every three minutes. */
const AT_REST_SECONDS = 360;
/** For measurements in which no round is to take place. */
const NO_ROUNDS_SECONDS = 86_400;

/** What happens on the host while the daemon is measured: commands of nft, one after the other, each followed by its reverse. */
const CHANGES: Readonly<Record<string, Changes>> = {
  "changes of another program's table": {
    before: 'add table inet other; add chain inet other c',
    turns: ['add rule inet other c counter', 'flush chain inet other c'],
  },
  'changes of the chains of kube-proxy': {
    before: 'add table ip filter; add chain ip filter KUBE-SERVICES',
    turns: ['add rule ip filter KUBE-SERVICES counter', 'flush chain ip filter KUBE-SERVICES'],
  },
  'changes of other chains of iptables': {
    before: 'add table ip filter; add chain ip filter DOCKER-USER',
    turns: ['add rule ip filter DOCKER-USER counter', 'flush chain ip filter DOCKER-USER'],
    isSweep: true,
  },
};

interface Changes {
  readonly before: string;
  readonly turns: readonly string[];
  /** They make the daemon check all attachments at once; the next time comes minutes later, not in this measurement. */
  readonly isSweep?: boolean;
}

/** One measurement. */
export interface Watched {
  readonly scene: string;
  readonly isSweep?: boolean;
  /** Processor time of the daemon and its workers, in percent of one core. */
  readonly percent: number;
  /** Checks of attachments during that time, per second. */
  readonly checksPerSecond: number;
}

/** What follows when the rules of all attachments are gone, in milliseconds after that. */
export interface Flushed {
  readonly noticedMs: number;
  readonly repairedMs: number;
  /** Processor time of the daemon and its workers. */
  readonly usedMs: number;
}

/**
 * Measures the rounds at rest; without rounds, what changes of rules cost; and at last a flush of all rules under policy `repair`.
 * The policy makes no difference before that, because nothing is damaged.
 * @param count attachments
 * @param seconds per kind of change
 */
export async function measureWatching(
  count: number,
  seconds: number,
): Promise<{ readonly used: readonly Watched[]; readonly flushed: Flushed }> {
  return await withHost(async lab => {
    const chain = writeChain(lab, fullChain(lab));
    await attachAll(lab, chain, count);
    const resting = await startSettled(lab, count, {});
    const used = [told({ scene: 'at rest', ...(await use(resting, AT_REST_SECONDS)) })];
    await resting.stop();
    const daemon = await startSettled(lab, count, { watch: 'repair', watchSeconds: NO_ROUNDS_SECONDS });
    for (const [scene, { before, turns, isSweep = false }] of Object.entries(CHANGES)) {
      await runOk(['ip', 'netns', 'exec', lab.host.name, 'nft', before]);
      const churn = startChurn(lab, turns);
      used.push(told({ scene, isSweep, ...(await use(daemon, seconds)) }));
      await churn.stop();
      await runOk(['ip', 'netns', 'exec', lab.host.name, 'nft', 'delete', ...tableOf(before)]);
    }
    const flushed = await flush(lab, daemon, count);
    await daemon.stop();
    return { used, flushed };
  });
}

/** A daemon that has checked all attachments once. */
async function startSettled(lab: Lab, count: number, settings: Row): Promise<Daemon> {
  const daemon = await startWatcher(lab, settings);
  const firstMs = await untilAllChecked(daemon, count);
  process.stderr.write(`first check of all: ${(firstMs / 1_000).toFixed(1)} s of processor time\n`);
  await Bun.sleep(SETTLE_MS);
  return daemon;
}

function told(one: Watched): Watched {
  const { scene, percent, checksPerSecond } = one;
  process.stderr.write(
    `${scene}: ${percent.toFixed(2)} %, ${checksPerSecond.toFixed(2)} checks per second\n`,
  );
  return one;
}

async function flush(lab: Lab, daemon: Daemon, count: number): Promise<Flushed> {
  const before = (await stateOf(daemon)).watch;
  const more = (now: Row, of: 'checks' | 'repairs', what: string): number =>
    (now[of]?.[what] ?? 0) - (before[of]?.[what] ?? 0);
  const [startedAt, used] = [performance.now(), usedMs(daemon.pid)];
  await runOk(['ip', 'netns', 'exec', lab.host.name, 'nft', 'flush', 'ruleset']);
  let noticedMs = 0;
  await until(
    async () => {
      const { watch } = await stateOf(daemon);
      if (more(watch, 'checks', 'drifted') > 0) noticedMs ||= performance.now() - startedAt;
      return more(watch, 'repairs', 'repaired') >= count && watch.drifted.length === 0;
    },
    { withinMs: FIRST_WITHIN_MS, everyMs: 100 },
  );
  const flushed = {
    noticedMs,
    repairedMs: performance.now() - startedAt,
    usedMs: usedMs(daemon.pid) - used,
  };
  process.stderr.write(`repair, nft flush ruleset: ${JSON.stringify(flushed)}\n`);
  return flushed;
}

function tableOf(before: string): string[] {
  return (/table \S+ \S+/.exec(before)?.[0] ?? '').replace(/;$/, '').split(' ');
}

async function attachAll(lab: Lab, chain: Chain, count: number): Promise<void> {
  const daemon = await startDaemon(lab);
  let next = 0;
  const work = async (): Promise<void> => {
    for (let i = next++; i < count; i = next++) await chain.add(await lab.container(), { cap: portOf(i) });
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  await daemon.stop();
}

function startChurn(lab: Lab, turns: readonly string[]): { stop(): Promise<void> } {
  let isOver = false;
  const work = async (): Promise<void> => {
    for (let i = 0; !isOver; i++) {
      const turn = turns[i % turns.length];
      if (turn === undefined) return;
      const next = Bun.sleep(CHANGE_EVERY_MS);
      await lab.run(lab.host, ['nft', turn]);
      await next;
    }
  };
  const working = work();
  return {
    stop() {
      isOver = true;
      return working;
    },
  };
}

/** A new daemon checks every attachment. @returns processor time of that in milliseconds */
async function untilAllChecked(daemon: Daemon, count: number): Promise<number> {
  await until(async () => (await checksOf(daemon)) >= count, { withinMs: FIRST_WITHIN_MS, everyMs: 500 });
  return usedMs(daemon.pid);
}

async function checksOf(daemon: Daemon): Promise<number> {
  const { watch } = await stateOf(daemon);
  return Object.values<number>(watch.checks ?? {}).reduce((sum, one) => sum + one, 0);
}

/** What a daemon uses during a time in which it is not asked anything. */
async function use(daemon: Daemon, seconds: number): Promise<Omit<Watched, 'scene' | 'isSweep'>> {
  const before = await checksOf(daemon);
  const [startedAt, used] = [performance.now(), usedMs(daemon.pid)];
  await Bun.sleep(seconds * 1_000);
  const [tookMs, usedNow] = [performance.now() - startedAt, usedMs(daemon.pid)];
  return {
    percent: ((usedNow - used) / tookMs) * 100,
    checksPerSecond: ((await checksOf(daemon)) - before) / (tookMs / 1_000),
  };
}

/** Fields of /proc/<pid>/stat after the name: utime, stime, and those of children that have ended (proc(5)). */
const TIMES = [11, 12, 13, 14];
const TICK_MS = 10;

/** Processor time of a process and all that it started, those that have ended too. */
export function usedMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  const own = TIMES.reduce((sum, field) => sum + Number(fields[field]) * TICK_MS, 0);
  return childrenOf(pid).reduce((sum, child) => sum + usedMs(child), own);
}
