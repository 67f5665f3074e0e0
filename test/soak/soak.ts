// Is anything leaked when thousands of attachments come and go?

import path from 'node:path';
import { fullChain } from '../helpers/chain.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { inventory, leftOver } from './inventory.ts';
import type { Order, Sample } from './order.ts';

const NAMESPACES = 16;
/** Garbage collection is up to the engine; a leak of a few kilobytes per call exceeds this. */
const MEMORY_SLACK_MB = 32;

/** Which chain is tested. */
export type SoakName = 'bridge' | 'chain';

/** The outcome of a soak. */
export interface SoakReport {
  readonly name: SoakName;
  readonly lives: number;
  readonly seconds: number;
  readonly samples: readonly Sample[];
  /** What the host holds that it did not hold before, by kind: names. */
  readonly left: Readonly<Record<string, readonly string[]>>;
}

/** Lets attachments of a chain come and go inside a fake host: eight at a time, with all verbs mixed. */
export function runSoak(name: SoakName, lives: number, sampleEvery: number): Promise<SoakReport> {
  return withHost(async lab => {
    const containers: Container[] = [];
    for (let i = 0; i < NAMESPACES; i++) containers.push(await lab.container());
    const before = await inventory(lab, containers);
    const started = performance.now();
    const samples = await runWorker(lab, {
      list: listOf(lab, name),
      pluginDirs: [BIN_DIR],
      cacheDir: `${lab.tmp}/cni`,
      tuningDir: `${lab.tmp}/tuning`,
      namespaces: containers.map(container => container.path),
      lives,
      sampleEvery,
      ports: name === 'chain',
      keepsRecords: name === 'chain',
    });
    const seconds = (performance.now() - started) / 1000;
    const left = leftOver(before, await inventory(lab, containers));
    return { name, lives, seconds, samples, left };
  });
}

/** The problems after a soak, human-readable; empty if there are none. */
export function findLeaks({ samples, left }: SoakReport): string[] {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined) return ['the worker said nothing'];
  const leaks = Object.entries(left)
    .filter(([, names]) => names.length > 0)
    .map(([kind, names]) => `${names.length} left, ${kind}: ${names.slice(0, 5).join(', ')}`);
  // While eight are at work each has some pipes open, but none has at the end.
  if (last.descriptors > first.descriptors) {
    leaks.push(`descriptors went from ${first.descriptors} to ${last.descriptors}`);
  }
  if (last.memoryMb > first.memoryMb + MEMORY_SLACK_MB) {
    leaks.push(`memory went from ${first.memoryMb} to ${last.memoryMb} MB`);
  }
  if (last.children > 0) leaks.push(`${last.children} processes left`);
  return [...leaks, ...last.problems];
}

/** Bridge with host-local only, or all five plugins; with addresses for more lives than ever overlap. */
function listOf(lab: Lab, name: SoakName): Order['list'] {
  const list = fullChain(lab, { rate: 80_000_000 }) as Order['list'] & { plugins: Row[] };
  return name === 'chain' ? list : { ...list, plugins: list.plugins.slice(0, 1) };
}

async function runWorker(lab: Lab, order: Order): Promise<Sample[]> {
  const argv = [process.execPath, path.join(import.meta.dir, 'worker.ts'), JSON.stringify(order)];
  const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, {
    env: directories(lab.tmp),
    timeoutMs: 60_000 + order.lives * 1_000,
  });
  if (exitCode !== 0) throw new Error(`Cannot finish the soak: exit code ${exitCode}: ${stderr}`);
  return stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Sample);
}
