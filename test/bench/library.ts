// What does the library cost in addition to the processes that it starts, and how long does it take to read many conflists?
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { parseNetwork } from '../../src/chain/config/conflist.ts';
import { addNetwork, checkNetwork } from '../../src/chain/run/run.ts';
import type { Runtime } from '../../src/chain/run/runtime.ts';
import type { Exec } from '../../src/chain/run/segment.ts';
import { ROOT } from '../helpers/source-tree.ts';
import { type Contestant, type Samples, takeTurns, timed } from './measure.ts';

const LINKS = 5;
const RESULT = '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}';

/** Conflists that are read at once. */
export const LISTS = 1000;

/** The executable that every contestant starts: it only prints. */
const LINK = `#!/bin/sh\nprintf '${RESULT}'\n`;

/**
 * Milliseconds per plugin of a chain of five trivial plugins: the processes alone (`Bun.spawn`), the same through execa, the
 * whole library, and the library without any process, with a journal and without one.
 */
export async function measureLibrary(rounds: number): Promise<Samples> {
  const dir = mkdtempSync(join(tmpdir(), 'cat-bench-'));
  try {
    const path = join(dir, 'link');
    writeFileSync(path, LINK);
    chmodSync(path, 0o755);
    const runtime = { pluginDirs: [dir], cacheDir: join(dir, 'cache') };
    const silent: Runtime = { ...runtime, exec: answer };
    const journal = { ...silent, stateDir: join(dir, 'state') };
    let count = 0;
    // An attachment that already has a record would be written only once, at the end.
    const another = () => ({ ...ATTACHMENT, netns: '/proc/self/ns/net', containerId: `c${++count}` });
    return await takeTurns(
      [
        perLink(
          'bare',
          times(() => spawnBare(path)),
        ),
        perLink(
          'execa',
          times(() => startWithExeca(path)),
        ),
        perLink('library', () => addNetwork(LIST, ATTACHMENT, runtime)),
        perLink('library CHECK', () => checkNetwork(LIST, ATTACHMENT, runtime)),
        perLink('no process', () => addNetwork(LIST, another(), silent)),
        perLink('journal', () => addNetwork(LIST, another(), journal)),
      ],
      rounds,
    );
  } finally {
    rmSync(dir, { recursive: true });
  }
}

/** Milliseconds to read a directory of 1,000 conflists, each time in a process that has not read one before. */
export async function measureLoading(rounds: number): Promise<Samples> {
  const dir = mkdtempSync(join(tmpdir(), 'cat-bench-'));
  try {
    const list = await Bun.file(join(ROOT, 'conflists/bridge-full.conflist')).json();
    for (let i = 0; i < LISTS; i++)
      writeFileSync(join(dir, `${i}.conflist`), JSON.stringify({ ...list, name: `net${i}` }, null, 2));
    const program = join(dir, 'program.ts');
    const source = [
      `import { listNetworks } from '${join(ROOT, 'src/chain/config/load.ts')}';`,
      'const start = performance.now();',
      `const { networks } = listNetworks('${dir}');`,
      `if (networks.length !== ${LISTS}) throw new Error('not all were read');`,
      'process.stdout.write(String(performance.now() - start));',
    ].join('\n');
    writeFileSync(program, source);
    const reader: Contestant = {
      name: 'load',
      async round() {
        const { stdout, stderr, success } = Bun.spawnSync([process.execPath, program]);
        if (!success) throw new Error(stderr.toString());
        return { lists: Number(stdout.toString()) };
      },
    };
    return await takeTurns([reader], rounds);
  } finally {
    rmSync(dir, { recursive: true });
  }
}

const ATTACHMENT = { containerId: 'c1', netns: '/run/netns/none', ifname: 'eth0' };
const LIST = parseNetwork(
  JSON.stringify({ cniVersion: '1.1.0', name: 'bench', plugins: Array(LINKS).fill({ type: 'link' }) }),
);
const REQUEST = JSON.stringify({ cniVersion: '1.1.0', name: 'bench', type: 'link' });

const answer: Exec = () => ({ stdout: RESULT });

function perLink(name: string, work: () => Promise<unknown>): Contestant {
  return { name, round: async () => ({ 'per link': (await timed(work)) / LINKS }) };
}

function times(work: () => Promise<unknown>): () => Promise<void> {
  return async () => {
    for (let i = 0; i < LINKS; i++) await work();
  };
}

async function spawnBare(path: string): Promise<void> {
  const child = Bun.spawn([path], { stdin: Buffer.from(REQUEST), stdout: 'pipe', stderr: 'pipe' });
  await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
}

async function startWithExeca(path: string): Promise<void> {
  const running = execa(path, [], { input: REQUEST, reject: false, detached: true, cleanup: false });
  await running;
}
