// Does Catena give the pods of a real Kubernetes their networks?
//
//   npm run cluster -- test                 builds what is missing, starts a cluster, plays all scenarios
//   npm run cluster -- test hostports       those whose name contains this
//   npm run cluster -- test figures --runs 5 --pods 1,30,110 --sides plain,runner      the last scenario but one: what and how often
//   npm run cluster -- test devices move --count 200      pods with devices, moves of machines
//   npm run cluster -- up --nodes 2         starts one that stays, with Catena
//   npm run cluster -- shell                a shell with kubectl there; `shell node1` on a node
//   npm run cluster -- down                 ends it
//
// KUBERNETES_BIN names a directory with other builds of Kubernetes.

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { installTestPackages } from '../helpers/debian.ts';
import { closeLabs } from '../helpers/netns.ts';
import { readOptions, refuse } from '../helpers/options.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { requiresRuntime, unpackRuntimes } from '../helpers/runtimes.ts';
import { buildKubernetes } from './build.ts';
import { type Cluster, startCluster, untilReady } from './cluster.ts';
import { installCatena } from './install-catena.ts';
import { down, keep, shell, up } from './keep.ts';
import { playScenarios } from './play.ts';

const { positionals, values } = readOptions(
  {
    allowPositionals: true,
    options: {
      nodes: { type: 'string', default: '3' },
      runs: { type: 'string', default: '5' },
      pods: { type: 'string', default: '1,30,110' },
      sides: { type: 'string', default: 'plain,runner' },
      count: { type: 'string' },
      out: { type: 'string', default: path.join(os.tmpdir(), 'catena-cluster') },
    },
  },
  'count',
);
const [command = 'test', ...words] = positionals;
const say = (line: string): void => void fs.writeSync(1, `${line}\n`);

// Ctrl-C ends the cluster, and with it everything that waits for it.
let running: Cluster | undefined;
let ending = false;
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => {
    if (ending) return;
    ending = true;
    void end().finally(() => process.exit(130));
  });
}

process.exitCode = await main().catch(async error => {
  if (!ending) say(error instanceof Error ? (error.stack ?? error.message) : String(error));
  await end();
  return 1;
});

async function main(): Promise<number> {
  if (command === 'down') return down(say);
  if (command === 'shell') return shell(say, words[0]);
  if (!['up', 'keep', 'test', 'build'].includes(command)) refuse(`There is no command "${command}"`);
  for (const failure of [await installTestPackages(), await unpackRuntimes()]) if (failure) say(failure);
  const obstacle = requiresRuntime(
    'containerd',
    'ctr',
    'containerd-shim-runc-v2',
    'runc',
    'busybox',
    'podman',
  );
  const client = Bun.which('curl') === null ? 'needs "curl" for requests to pods' : undefined;
  if (obstacle ?? client) {
    say(`Cannot start a cluster: it ${obstacle ?? client}`);
    return 1;
  }
  await buildKubernetes(say);
  if (command === 'build') return 0;
  if (command === 'up') return up({ nodes: values.nodes, out: values.out }, say);
  const started = performance.now();
  running = await startCluster({ nodes: Number(values.nodes), logs: values.out, home: BIN_DIR }, line =>
    say(`${((performance.now() - started) / 1000).toFixed(0).padStart(4)} s  ${line}`),
  );
  say('Catena');
  await installCatena(running);
  await untilReady(running);
  say(`${running.nodes.length} nodes are ready after ${((performance.now() - started) / 1000).toFixed(0)} s`);
  if (command === 'keep') return keep(running);
  const list = (text: string): string[] => text.split(/,(?! )/);
  const asked = {
    runs: Number(values.runs),
    pods: list(values.pods).map(Number),
    sides: list(values.sides),
    ...(values.count && { count: Number(values.count) }),
  };
  const code = await playScenarios(running, words, asked, say);
  await end();
  return code;
}

async function end(): Promise<void> {
  await running?.close();
  running = undefined;
  await closeLabs();
}
