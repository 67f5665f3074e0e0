// How does a cluster stay between commands?
// `up` starts a process that owns it (`keep`), and waits until it is ready; `down` ends that process, which removes everything.

import fs from 'node:fs';
import path from 'node:path';
import { unpackedAt } from '../helpers/unpack.ts';
import { awaiting } from './awaiting.ts';
import type { Cluster, Say } from './cluster.ts';

const KEPT = unpackedAt('catena-cluster.json');
const MAIN = path.join(import.meta.dir, 'main.ts');

/** Where a kept cluster is. */
interface Kept {
  readonly pid: number;
  readonly kubectl: string;
  readonly kubeconfig: string;
  /** For each machine, a process id, outside, of its first process. */
  readonly machines: Readonly<Record<string, number>>;
}

/** Writes where the cluster is, and waits for a signal. */
export async function keep({ control, nodes, kubectl, programs }: Cluster): Promise<never> {
  const machines = [
    ['control', control.machine] as const,
    ...nodes.map(n => [n.place.name, n.machine] as const),
  ];
  const kept: Kept = {
    pid: process.pid,
    kubectl: programs.kubectl,
    kubeconfig: kubectl.kubeconfig,
    machines: Object.fromEntries(machines.map(([name, machine]) => [name, machine.init()])),
  };
  fs.writeFileSync(KEPT, JSON.stringify(kept));
  process.on('exit', () => fs.rmSync(KEPT, { force: true }));
  for (;;) await Bun.sleep(60_000);
}

/** Starts a cluster that stays. */
export async function up(options: { nodes: string; out: string }, say: Say): Promise<number> {
  if (find() !== undefined) {
    say('There is one already: npm run cluster -- down');
    return 1;
  }
  fs.mkdirSync(options.out, { recursive: true });
  const log = path.join(options.out, 'keep.log');
  const argv = [process.execPath, MAIN, 'keep', '--nodes', options.nodes, '--out', options.out];
  const child = Bun.spawn(['setsid', ...argv], {
    stdio: ['ignore', Bun.file(log), Bun.file(log)],
    env: { ...process.env },
  });
  child.unref();
  await awaiting(`the cluster, whose log is ${log}`, 900, async () => {
    if (child.exitCode !== null) throw new Error('it has ended');
    return find();
  });
  say(`It is up: npm run cluster -- shell; its logs are in ${options.out}`);
  return 0;
}

/** Ends it. */
export async function down(say: Say): Promise<number> {
  const kept = find();
  if (kept === undefined) {
    say('There is no cluster');
    return 0;
  }
  process.kill(kept.pid, 'SIGTERM');
  await awaiting('the cluster to end', 120, async () => !fs.existsSync(`/proc/${kept.pid}`));
  fs.rmSync(KEPT, { force: true });
  return 0;
}

/** A shell on one of its machines, with kubectl. */
export async function shell(say: Say, name = 'control'): Promise<number> {
  const kept = find();
  const init = kept?.machines[name];
  if (kept === undefined || init === undefined) {
    const names = kept ? `: ${Object.keys(kept.machines).join(', ')}` : ' that is up';
    say(`There is no "${name}"${names}`);
    return 1;
  }
  const enter = ['nsenter', `--target=${init}`, '--net', '--mount', '--uts', '--pid', '--wd=/'];
  const child = Bun.spawn([...enter, '--', process.env.SHELL ?? '/bin/sh'], {
    stdio: ['inherit', 'inherit', 'inherit'],
    env: {
      ...process.env,
      KUBECONFIG: kept.kubeconfig,
      PATH: `${path.dirname(kept.kubectl)}:${process.env.PATH}`,
    },
  });
  return child.exited;
}

function find(): Kept | undefined {
  if (!fs.existsSync(KEPT)) return undefined;
  const kept = JSON.parse(fs.readFileSync(KEPT, 'utf8')) as Kept;
  return fs.existsSync(`/proc/${kept.pid}`) ? kept : undefined;
}
