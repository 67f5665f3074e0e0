// What goes wrong in a cluster, on purpose?

import fs from 'node:fs';
import path from 'node:path';
import { tryRead } from '../../src/files/read-file.ts';
import { WORKER_FLAG } from '../../src/worker/protocol.ts';
import { runOk } from '../helpers/command.ts';
import type { Machine } from '../helpers/machine.ts';
import { awaiting } from './awaiting.ts';
import type { Cluster } from './cluster.ts';
import type { Node } from './node.ts';

/** Something that goes wrong, and is over when it returns. */
export interface Fault {
  readonly name: string;
  /** @param turn counts its turns from 0 */
  strike(cluster: Cluster, node: Node, turn: number): Promise<void>;
}

/** How long what was killed is away. */
const AWAY_MS = 3000;
/** Longer than a plugin waits for a reply (5 s): the request is done after it was given up. */
const FROZEN_MS = 7000;
/** Longer than a client waits for a sign of life of its daemon. */
const FROZEN_DAEMON_MS = 4000;
const CUT_OFF_MS = 20_000;
const WRONG_CLOCK_MS = 12_000;
/** Seconds. No certificate of the cluster was valid yet, an hour ago. */
const WRONG_BY = [-3600, 3600] as const;
const PLUGINS = '/opt/cni/bin';

/** All of them; each leaves the cluster able to recover. */
export const FAULTS: readonly Fault[] = [
  {
    name: 'kubelet killed',
    async strike(_, node) {
      await node.kill('kubelet');
      await Bun.sleep(AWAY_MS);
      await node.start('kubelet');
    },
  },
  {
    name: 'API server killed',
    async strike({ control }) {
      await control.killApiServer();
      await Bun.sleep(AWAY_MS);
      await control.startApiServer();
    },
  },
  { name: 'daemon killed', strike: (_, { machine }) => restartDaemon(machine) },
  {
    name: 'API server frozen',
    strike: ({ control: { machine } }) => freeze(machine, machine.processes('/kube-apiserver'), FROZEN_MS),
  },
  {
    name: 'daemon frozen',
    async strike(_, { machine }) {
      const workers = withWord(machine, machine.processes('/proc/self/exe'), WORKER_FLAG);
      await freeze(machine, [...(await daemonsOf(machine)), ...workers], FROZEN_DAEMON_MS);
    },
  },
  {
    name: 'etcd killed',
    async strike({ control }) {
      await control.killEtcd();
      await Bun.sleep(AWAY_MS);
      await control.startEtcd();
    },
  },
  { name: 'node cut off', strike: ({ wire }, { place }) => cutOff(wire, place.name) },
  {
    name: 'etcd frozen',
    strike: ({ control: { machine } }) => freeze(machine, machine.processes('/etcd'), FROZEN_MS),
  },
  {
    name: 'node frozen',
    strike: (_, { machine }) => freeze(machine, machine.processes(''), FROZEN_MS),
  },
  {
    name: 'daemon with a wrong clock',
    strike: ({ logs }, node, turn) => runWithWrongClock(node, WRONG_BY[turn % WRONG_BY.length] ?? 0, logs),
  },
  { name: 'node rebooted', strike: (_, node) => node.reboot() },
];

/** Kills a node's daemon; kubelet starts it again. */
export async function restartDaemon(machine: Machine): Promise<void> {
  // Some of the processes may have ended already; so may those below.
  await machine.run(['kill', '-KILL', ...(await daemonsOf(machine))]);
}

async function freeze(machine: Machine, pids: readonly string[], ms: number): Promise<void> {
  await machine.run(['kill', '-STOP', ...pids]);
  await Bun.sleep(ms);
  await machine.run(['kill', '-CONT', ...pids]);
  continueOwn();
}

/** Continues every nsenter of this process: each stops with the process that it has started, and would never know that it has ended. */
function continueOwn(): void {
  for (const file of fs.globSync(`/proc/${process.pid}/task/*/children`)) {
    for (const pid of (tryRead(file) ?? '').split(' ').filter(Boolean)) {
      try {
        process.kill(Number(pid), 'SIGCONT');
      } catch {
        // It has ended.
      }
    }
  }
}

/** As if its cable were pulled at the switch. */
async function cutOff({ lab }: Cluster['wire'], name: string): Promise<void> {
  const turn = (state: string) => runOk(['ip', '-n', lab.host.name, 'link', 'set', name, state]);
  await turn('down');
  await Bun.sleep(CUT_OFF_MS);
  await turn('up');
}

/** Once there are any: kubelet may still wait before it starts one again. */
function daemonsOf(machine: Machine): Promise<string[]> {
  return awaiting('a daemon', 90, async () => {
    const found = withWord(machine, machine.processes('/catena'), 'daemon');
    return found.length > 0 && found;
  });
}

/** Those that were started with this word after their name. */
function withWord(machine: Machine, pids: readonly string[], wanted: string): string[] {
  return pids.filter(pid => {
    const [, word] = tryRead(machine.path(`/proc/${pid}/cmdline`))?.split('\0') ?? [];
    return word === wanted;
  });
}

/** Another daemon replaces that of the DaemonSet, which comes back when this one is killed. */
async function runWithWrongClock({ machine, place }: Node, seconds: number, logs: string): Promise<void> {
  const library = `${machine.lab.tmp}/wrong-clock.so`;
  if (!fs.existsSync(library)) {
    const source = path.join(import.meta.dir, 'wrong-clock.c');
    await runOk(['cc', '-shared', '-fPIC', '-O2', '-Wall', '-o', library, source]);
  }
  const before = await daemonsOf(machine);
  const env = [`LD_PRELOAD=${library}`, `WRONG_CLOCK=${seconds}`];
  const own = [`CNI_PATH=${PLUGINS}`, `CATENA_NODE_NAME=${place.name}`];
  const argv = ['env', ...env, ...own, `${PLUGINS}/catena`, 'daemon', '--replace'];
  machine.start(argv, `${logs}/${place.name}-wrong-clock.log`);
  await awaiting('the daemon with a wrong clock to replace the other', 90, async () => {
    return !(await daemonsOf(machine)).some(pid => before.includes(pid));
  });
  await Bun.sleep(WRONG_CLOCK_MS);
  await restartDaemon(machine);
}
