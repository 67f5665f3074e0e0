// How much memory does everything of ours hold that stays resident: the daemon and its workers?
import { readFileSync } from 'node:fs';
import { childrenOf } from '../helpers/children.ts';
import { portOf, withSides } from './sides.ts';

/** Longer than an idle worker is kept. */
const IDLE_MS = 35_000;

/** Containers that are attached and deleted before, eight at a time, so that several workers have run. */
const CONTAINERS = 64;
const AT_ONCE = 8;

/** Bytes of one process: its share of the pages that it maps, and all of them. */
export interface Memory {
  readonly proportional: number;
  readonly resident: number;
}

/** What the processes of a daemon hold: at the end of a burst, and after a time without requests. */
export interface Residents {
  readonly busy: readonly Memory[];
  /** The daemon first, then its workers. */
  readonly idle: readonly Memory[];
}

/** Measures a daemon that has served a burst of ADD and DEL. */
export async function measureMemory(): Promise<Residents> {
  return await withSides(['warm'], { libcni: undefined }, async ([runner]) => {
    if (runner?.daemon === undefined) throw new Error('Cannot measure memory: there is no daemon');
    const { daemon, lab, run } = runner;
    const queue = Array.from({ length: CONTAINERS }, (_, i) => i);
    const attach = async (): Promise<void> => {
      for (let i = queue.pop(); i !== undefined; i = queue.pop()) {
        const container = await lab.container();
        await run('add', container, portOf(i));
        await run('del', container);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, attach));
    const busy = memoryOfTree(daemon.pid);
    // By then idle workers have ended, and the last one has freed what calls had left.
    await Bun.sleep(IDLE_MS);
    return { busy, idle: memoryOfTree(daemon.pid) };
  });
}

/** The process itself first (proc(5), smaps_rollup). */
export function memoryOfTree(pid: number): Memory[] {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  const bytes = (key: string) => Number(new RegExp(`^${key}:\\s+(\\d+) kB`, 'm').exec(text)?.[1]) * 1024;
  const own = { proportional: bytes('Pss'), resident: bytes('Rss') };
  return [own, ...childrenOf(pid).flatMap(memoryOfTree)];
}
