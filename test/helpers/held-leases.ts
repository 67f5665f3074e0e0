// How is a link stopped in the middle of its work? Somebody else holds the lock of the leases that it needs.

import { existsSync, mkdirSync, readdirSync, readlinkSync } from 'node:fs';
import { type Chain, fullChain, writeChain } from './chain.ts';
import type { Container, Lab } from './netns.ts';

/** A bridge whose addresses cannot be had until somebody lets go. */
export interface HeldLeases {
  readonly chain: Chain;
  readonly container: Container;
  /** Waits until a process whose command line holds the word wants the lock. @returns its id */
  waiter(word: string): Promise<number>;
  release(): void;
}

/** A chain of bridge with host-local alone, whose lock of leases is held. */
export async function holdLeases(lab: Lab): Promise<HeldLeases> {
  const list = fullChain(lab);
  const chain = writeChain(lab, { ...list, plugins: list.plugins.slice(0, 1) });
  const dir = `${lab.tmp}/leases/${list.name}`;
  mkdirSync(dir, { recursive: true });
  const holder = lab.start(lab.host, ['flock', `${dir}/lock`, '-c', `touch ${dir}/../held; sleep 60`]);
  await until(async () => existsSync(`${dir}/../held`));
  return {
    chain,
    container: await lab.container(),
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

/** Waits until something holds; throws after 20 s. */
export async function until(condition: () => Promise<boolean>): Promise<void> {
  for (let i = 0; i < 1000; i++) {
    if (await condition()) return;
    await Bun.sleep(20);
  }
  throw new Error('Cannot go on: what the test waits for did not happen within 20 s');
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
  const { stdout } = Bun.spawnSync(['pgrep', '-P', String(pid)]);
  const direct = stdout.toString().split('\n').filter(Boolean).map(Number);
  return direct.flatMap(child => [child, ...descendantsOf(child)]);
}
