// How is a plugin stopped in the middle of its work? Another process holds the lock of the leases that it needs.

import { existsSync, mkdirSync, readdirSync, readlinkSync } from 'node:fs';
import { type Chain, fullChain, writeChain } from './chain.ts';
import { childrenOf } from './children.ts';
import type { Container, Lab } from './netns.ts';
import { until } from './until.ts';

/** A bridge whose addresses are unavailable until the lock is released. */
export interface HeldLeases {
  readonly chain: Chain;
  readonly container: Container;
  /** Waits until a process with this word in its command line waits for the lock. @returns its id */
  waiter(word: string): Promise<number>;
  release(): void;
}

/** A chain of bridge with host-local alone, whose lease lock is held. */
export async function holdLeases(lab: Lab): Promise<HeldLeases> {
  const list = fullChain(lab);
  const chain = writeChain(lab, { ...list, plugins: list.plugins.slice(0, 1) });
  const lock = await holdLock(lab, `${lab.tmp}/leases/${list.name}`);
  return { chain, container: await lab.container(), ...lock };
}

/** Holds the lock of a network's leases. */
export async function holdLock(lab: Lab, dir: string): Promise<Pick<HeldLeases, 'waiter' | 'release'>> {
  mkdirSync(dir, { recursive: true });
  const holder = lab.start(lab.host, ['flock', `${dir}/lock`, '-c', `touch ${dir}/../held; sleep 60`]);
  await until(async () => existsSync(`${dir}/../held`));
  return {
    async waiter(word) {
      let found: number | undefined;
      await until(async () => {
        const { stdout } = await lab.run(lab.host, ['ip', 'netns', 'pids', lab.host.name]);
        const pids = stdout.split('\n').filter(Boolean).map(Number);
        for (const pid of pids) {
          if (hasOpen(pid, `${dir}/lock`) && (await commandLineOf(pid)).includes(word)) found = pid;
        }
        return found !== undefined;
      });
      return found ?? 0;
    },
    release() {
      for (const pid of descendantsOf(holder.pid)) process.kill(pid, 'SIGKILL');
      holder.kill('SIGKILL');
    },
  };
}

function hasOpen(pid: number, file: string): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some(fd => readlinkSync(`/proc/${pid}/fd/${fd}`) === file);
  } catch {
    return false;
  }
}

function commandLineOf(pid: number): Promise<string> {
  return Bun.file(`/proc/${pid}/cmdline`)
    .text()
    .catch(() => '');
}

function descendantsOf(pid: number): number[] {
  return childrenOf(pid).flatMap(child => [child, ...descendantsOf(child)]);
}
