// Whose chain runs, and how, each in a fake host of its own?
import { type Chain, fullChain, mixedBinDir, writeChain } from '../helpers/chain.ts';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { directories, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { answerAtOnce } from './answer-at-once.ts';
import { callerRun, type RunVerb } from './caller.ts';
import { type Contestant, renewed, timed } from './measure.ts';
import { succeeds } from './unmeasured.ts';

/** The executables of the chain. */
export const PLUGINS = ['bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'] as const;

/**
 * Whose chain runs, and how. By the command: the reference's; ours without a daemon; the same, keeping a trace of each request; ours
 * with a daemon; our client alone, with a fake daemon that replies at once and does nothing. By a runtime, which starts each
 * executable itself: the reference's; ours without a daemon; ours with one.
 */
export type Side = 'reference' | 'ours' | 'traced' | 'warm' | 'answered' | RuntimeSide;

/** Sides of what a runtime sees. */
export const RUNTIME_SIDES = ['runtime-reference', 'runtime-ours', 'runtime-warm'] as const;
export type RuntimeSide = (typeof RUNTIME_SIDES)[number];

/** Further information for measuring: what runs the reference's chain, and every chain as a runtime does. */
export interface Peer {
  /** A program that does it with libcni; if undefined, our runner, or a caller in this process that does what libcni does. */
  readonly libcni: string | undefined;
}

/** A chain in a fake host of its own, and how one verb of it is run. */
export interface Runner {
  readonly side: Side;
  readonly lab: Lab;
  readonly daemon?: Daemon;
  readonly run: RunVerb;
}

/** Runs the body with chains in fake hosts, one for each side, and removes all of it afterwards. */
export async function withSides<T>(
  sides: readonly Side[],
  peer: Peer,
  body: (runners: Runner[]) => Promise<T>,
): Promise<T> {
  const [side, ...more] = sides;
  if (side === undefined) return await body([]);
  const withSide = async (lab: Lab): Promise<T> => {
    const chain = prepare(lab, side);
    const daemon = side.endsWith('warm') ? await startDaemon(lab) : undefined;
    const answering = side === 'answered' ? answerAtOnce(lab) : undefined;
    const runner: Runner = {
      side,
      lab,
      ...(daemon ? { daemon } : {}),
      run: runOf(lab, chain, side, peer),
    };
    try {
      return await withSides(more, peer, runners => body([runner, ...runners]));
    } finally {
      await daemon?.stop();
      await answering?.stop();
    }
  };
  return await withHost(withSide, { directly: true });
}

function prepare(lab: Lab, side: Side): Chain {
  const list = fullChain(lab, { cniVersion: '1.0.0', rate: 800_000_000 });
  list.name = side;
  return writeChain(lab, list);
}

function runOf(lab: Lab, chain: Chain, side: Side, { libcni }: Peer): RunVerb {
  const isRuntime = side.startsWith('runtime-');
  const binDir = side.endsWith('reference') ? REFERENCE_BIN_DIR : BIN_DIR;
  if (libcni && (isRuntime || side === 'reference')) return libcniRun(lab, chain, libcni, binDir);
  return isRuntime ? callerRun(lab, chain.list, binDir) : ownRun(lab, chain, side);
}

function ownRun(lab: Lab, chain: Chain, side: Side): RunVerb {
  const binDir = side === 'reference' ? mixedBinDir(lab, REFERENCE_BIN_DIR, ...PLUGINS) : BIN_DIR;
  const args = side === 'traced' ? ['--trace'] : [];
  return async (verb, container, cap) => {
    check(await chain.run(verb, container, { binDir, args, ...(cap ? { cap } : {}) }));
  };
}

function libcniRun(lab: Lab, chain: Chain, program: string, binDir: string): RunVerb {
  const file = `${lab.tmp}/${chain.name}.conflist`;
  return async (verb, container, cap) => {
    const argv = [program, verb, file, container.path, container.id, `${lab.tmp}/cni`];
    const env = { ...directories(lab.tmp), CNI_PATH: binDir, PATH: process.env.PATH ?? '' };
    check(
      await lab.run(lab.host, [...argv, ...(cap ? [JSON.stringify(cap)] : [])], { env, timeoutMs: 60_000 }),
    );
  };
}

/** One attachment at a time on a node that is not empty: ADD and DEL of one, CHECK of another. */
export async function single(runner: Runner): Promise<Contestant> {
  const { lab, side } = runner;
  // The bridge exists, and so do the shared rules.
  await runner.run('add', await lab.container(), portOf(20_000));
  const [container, checked] = [await lab.container(), await lab.container()];
  await runner.run('add', checked, portOf(20_001));
  // Our runner passes CHECK the ports of the ADD, as the specification requires; Debian's portmap (1.1.1) then looks for the
  // rules of IPv4 among those of IPv6. libcni passes what its caller gives, here nothing.
  const checks = await succeeds(`CHECK of the chain, ${side}`, () => runner.run('check', checked));
  return {
    name: side,
    async round(i) {
      const one = renewed(container, i);
      return {
        ADD: await timed(() => runner.run('add', one, portOf(i))),
        ...(checks ? { CHECK: await timed(() => runner.run('check', checked)) } : {}),
        DEL: await timed(() => runner.run('del', one)),
      };
    },
  };
}

/** A mapping of a different port for each number. */
export function portOf(i: number): object {
  return { portMappings: [{ hostPort: 10_000 + i, containerPort: 80, protocol: 'tcp' }] };
}

function check({ exitCode, stderr }: { exitCode: number; stderr: string }): void {
  if (exitCode !== 0) throw new Error(`the chain failed with ${exitCode}: ${stderr}`);
}
