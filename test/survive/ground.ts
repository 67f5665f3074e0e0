// Where do faults happen: a fake host with one attachment that they may strike, and perhaps one that they must not?

import fs from 'node:fs';
import { untilBeforeGc } from '../helpers/before-gc.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { exitCodeOf, type Finished, runOk } from '../helpers/command.ts';
import { type Container, createLab, directories, type Lab } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import type { Reshape } from './chains.ts';
import { type State, settledState, stateReader } from './state.ts';

/** The verbs that faults strike. */
export type Verb = 'add' | 'del' | 'gc';

/** A running command that waits for its configuration. */
export interface Held {
  readonly pid: number;
  /** The already started process that will serve its plugins. */
  readonly workerPid: number;
  /** Lets it continue. */
  release(): Promise<void>;
  readonly finished: Promise<Finished>;
  kill(): void;
}

/** A fake host. */
export interface Ground {
  readonly lab: Lab;
  /** Whether another container is attached to the same network all the time. */
  readonly busy: boolean;
  /** Number of plugins in the chain. */
  readonly links: number;
  /** The state without the attachment, and with it. */
  readonly absent: State;
  readonly present: State;
  /** The current state of everything that attachments may change. */
  state(): Promise<State>;
  /** Runs a command of the network, for the attachment or for another container. */
  run(verb: Verb | 'check' | 'repair', whose?: 'own' | 'other'): Promise<Finished>;
  /** Starts a command and holds it before it reads its configuration. */
  hold(verb: Verb): Promise<Held>;
  /** Translates a path of a similar fake host into one of this host: each lab has other directories and namespaces. */
  localise(path: string): string;
  /** The inverse of that. */
  generalise(text: string): string;
  /** Makes the next ADD get the address of the last one. */
  rewindRange(): void;
  /** Resets what tuning changes to the values of a new namespace. */
  resetSysctls(): Promise<void>;
  /** Makes the next ADD the first one of its host, or at least one that gets the address of the last one. */
  prepareAdd(): Promise<void>;
  close(): Promise<void>;
}

export const CAP = {
  portMappings: [
    { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
    { hostPort: 8053, containerPort: 53, protocol: 'udp' },
  ],
  bandwidth: { ingressRate: 1e8, ingressBurst: 1e6, egressRate: 1e8, egressBurst: 1e6 },
};
/** Without port mappings, since a port is forwarded to one container only. */
const OTHERS = { cap: { bandwidth: CAP.bandwidth } };
/** The kernel's default in a new namespace. */
export const SOMAXCONN = 4096;
const VERB_DEADLINE_MS = 90_000;

/** Everything except the states with and without the attachment. */
type Handle = Omit<Ground, 'absent' | 'present'>;

/**
 * Creates a fake host with the full chain, after one ADD and DEL.
 * @param reshape what is different about the chain
 */
export async function makeGround(busy: boolean, reshape: Reshape = plugins => plugins): Promise<Ground> {
  const lab = await createLab();
  try {
    const handle = await prepare(lab, busy, reshape);
    await succeed(handle, 'add');
    await succeed(handle, 'del');
    const absent = await settledState(handle.state);
    await handle.prepareAdd();
    await succeed(handle, 'add');
    const present = await settledState(handle.state);
    await succeed(handle, 'del');
    return { ...handle, absent, present };
  } catch (error) {
    await lab.close();
    throw error;
  }
}

async function prepare(lab: Lab, busy: boolean, reshape: Reshape): Promise<Handle> {
  for (const key of ['net/ipv4/ip_forward', 'net/ipv6/conf/all/forwarding'])
    await lab.sysctl(lab.host, key, 1);
  const [own, other, neighbour] = [await lab.container(), await lab.container(), await lab.container()];
  const gate = `${lab.tmp}/gate`;
  await runOk(['mkfifo', gate]);
  // The watch has the worker check other attachments, and a death then would not be one of the verb.
  fs.writeFileSync(settingsOf(lab), JSON.stringify({ watch: 'off', workers: 1 }));
  const full = fullChain(lab);
  const list = { ...full, plugins: await reshape(full.plugins, lab) };
  const chain = writeChain(lab, list);
  const links: number = list.plugins.length;
  if (busy) await chain.add(neighbour, OTHERS);
  const keep = busy ? ['--valid', `${neighbour.id}/eth0`] : ['--all'];
  const names = [
    [lab.tmp, '{tmp}'],
    [own.name, '{own}'],
    [neighbour.name, '{neighbour}'],
  ] as const;
  const rewindRange = (): void => {
    const dir = `${lab.tmp}/leases/podnet`;
    for (const family of [0, 1]) fs.rmSync(`${dir}/last_reserved_ip.${family}`, { force: true });
    // In any case the index is outdated now.
    if (fs.existsSync(dir)) fs.utimesSync(dir, new Date(), new Date());
  };
  return {
    lab,
    busy,
    links,
    state: stateReader(lab, busy ? [own, other, neighbour] : [own, other], busy),
    run(verb, whose = 'own') {
      if (verb === 'repair') {
        const argv = [`${BIN_DIR}/catena`, 'repair', '--bin-dir', BIN_DIR, '--json'];
        return lab.run(lab.host, argv, { env: directories(lab.tmp), timeoutMs: VERB_DEADLINE_MS });
      }
      if (verb === 'gc') return chain.run(verb, own, { args: [...keep, '--json'] });
      const args = ['--json'];
      return whose === 'own'
        ? chain.run(verb, own, { cap: CAP, args })
        : chain.run(verb, other, { ...OTHERS, args });
    },
    hold: verb => hold(lab, gate, JSON.stringify(list), argumentsOf(verb, own, keep)),
    localise: path => names.reduce((text, [here, anywhere]) => text.replaceAll(anywhere, here), path),
    generalise: text => names.reduce((more, [here, anywhere]) => more.replaceAll(here, anywhere), text),
    rewindRange,
    resetSysctls: async () => void (await lab.sysctl(own, 'net/core/somaxconn', SOMAXCONN)),
    async prepareAdd() {
      rewindRange();
      if (busy) return;
      await runOk(['nsenter', `--net=${lab.host.path}`, '--', 'nft', 'flush', 'ruleset']);
      for (const dir of ['leases', 'state', 'cni', 'tuning', 'run'])
        fs.rmSync(`${lab.tmp}/${dir}`, { recursive: true, force: true });
    },
    close: () => lab.close(),
  };
}

/** The settings of a daemon that only serves, by one worker. */
export function settingsOf(lab: Lab): string {
  return `${lab.tmp}/daemon.json`;
}

/** Prepares a ground without the attachment for a verb; always with the same addresses. */
export async function prepareVerb(ground: Ground, verb: Verb): Promise<void> {
  if (verb === 'add') return ground.prepareAdd();
  ground.rewindRange();
  if (verb === 'gc') await ground.resetSysctls();
  await succeed(ground, 'add');
  if (verb === 'gc') await untilBeforeGc();
}

/** Runs a command that must succeed. */
export async function succeed(
  ground: Pick<Ground, 'run'>,
  verb: Verb | 'repair',
  whose?: 'own' | 'other',
): Promise<void> {
  const { exitCode, stdout, stderr } = await ground.run(verb, whose);
  if (exitCode !== 0) throw new Error(`${verb} fails with ${exitCode}: ${stdout.trim()} ${stderr.trim()}`);
}

function argumentsOf(verb: Verb, { path, id }: Container, keep: readonly string[]): string[] {
  const target = verb === 'gc' ? keep : [path, '--container-id', id, '--cap', JSON.stringify(CAP)];
  return [verb, 'podnet', ...target];
}

/** The configuration comes through a named pipe, on which a reader blocks until there is a writer. */
async function hold(lab: Lab, gate: string, list: string, args: readonly string[]): Promise<Held> {
  const env = Object.entries(directories(lab.tmp)).map(pair => pair.join('='));
  const argv = ['env', ...env, `${BIN_DIR}/catena`, ...args, '--file', gate, '--bin-dir', BIN_DIR, '--json'];
  const child = lab.start(lab.host, argv);
  const late = setTimeout(() => child.kill('SIGKILL'), VERB_DEADLINE_MS);
  const output = Promise.all([child.stdout.text(), child.stderr.text()]);
  const finished = child.exited.then(async () => {
    clearTimeout(late);
    const [stdout, stderr] = await Promise.race([output, Bun.sleep(1000).then(() => ['', ''])]);
    return {
      exitCode: exitCodeOf(child),
      stdout: stdout ?? '',
      stderr: stderr ?? '',
    };
  });
  // Opening it for writing blocks until there is a reader; if the command dies first, we must not block forever.
  const opening = fs.promises.open(gate, 'w');
  const reader = finished.then(() => fs.openSync(gate, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK));
  const writer = await opening;
  return {
    pid: child.pid,
    workerPid: await childOf(child.pid).catch(async error => {
      await writer.close();
      throw error;
    }),
    async release() {
      await writer.write(list).catch(() => {});
      await writer.close();
      void reader.then(fs.closeSync);
    },
    finished,
    kill: () => child.kill('SIGKILL'),
  };
}

async function childOf(pid: number): Promise<number> {
  for (let attempt = 0; attempt < 1000; attempt++) {
    const [child] = childrenOf(pid);
    if (child !== undefined) return child;
    if (!fs.existsSync(`/proc/${pid}`)) break;
    await Bun.sleep(2);
  }
  throw new Error(`Cannot find the worker of process ${pid}: it has no child`);
}
