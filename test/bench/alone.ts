// How long does each plugin take when a runtime starts its executable: ours without and with a daemon, and the reference's?
import { startDaemon } from '../helpers/daemon.ts';
import { type Row as Conf, type Container, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { type Contestant, renewed, type Samples, settle, takeTurns, timed } from './measure.ts';
import { compare, type Row } from './row.ts';
import { RUNTIME_SIDES, type RuntimeSide } from './sides.ts';
import { succeeds } from './unmeasured.ts';

/** What every plugin and verb may take of the reference's time. */
const TARGET = 0.9;

/** Rounds that a daemon has served of a plugin before it is measured; bridge, which attaches the pods, has served more. */
const SETTLED_ROUNDS = 20;

/** A plugin and its configuration. */
interface Subject {
  readonly conf: (lab: Lab) => Conf;
  /** It works on a pod that bridge has attached; otherwise on an empty namespace. */
  readonly isChained?: boolean;
  readonly ifname?: string;
}

/** Configurations that are common; bridge and ptp include host-local, as a runtime starts it. */
const SUBJECTS: Readonly<Record<string, Subject>> = {
  bridge: { conf: lab => ({ bridge: 'br1', isDefaultGateway: true, ipMasq: true, ...ipamOf(lab, 71) }) },
  ptp: { conf: lab => ({ ipMasq: true, ...ipamOf(lab, 72) }) },
  'host-local': { conf: lab => ipamOf(lab, 73) },
  static: { conf: () => ({ ipam: { type: 'static', addresses: [{ address: '10.74.0.2/16' }] } }) },
  loopback: { conf: () => ({}), ifname: 'lo' },
  portmap: { conf: () => ({ runtimeConfig: { portMappings: [port(8080)] } }), isChained: true },
  bandwidth: {
    conf: () => ({ ingressRate: 8e8, ingressBurst: 4e5, egressRate: 8e8, egressBurst: 4e5 }),
    isChained: true,
  },
  firewall: { conf: () => ({}), isChained: true },
  sbr: { conf: () => ({}), isChained: true },
  tuning: {
    conf: lab => ({ sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` }),
    isChained: true,
  },
};

/** A line for each plugin and verb, one at a time on a node that is not empty. */
export async function aloneRows(rounds: number): Promise<Row[]> {
  return await withSides(async sides => {
    const lines: Row[] = [];
    for (const [plugin, subject] of Object.entries(SUBJECTS)) {
      const contestants: Contestant[] = [];
      for (const side of sides) contestants.push(await contestant(side, plugin, subject));
      for (const one of contestants) if (one.name === 'runtime-warm') await settle(one, SETTLED_ROUNDS);
      lines.push(...linesOf(plugin, await takeTurns(contestants, rounds)));
    }
    return lines;
  });
}

interface Side {
  readonly name: RuntimeSide;
  readonly lab: Lab;
  readonly binDir: string;
}

async function withSides<T>(body: (sides: Side[]) => Promise<T>, sides: readonly Side[] = []): Promise<T> {
  const name = RUNTIME_SIDES[sides.length];
  if (name === undefined) return await body([...sides]);
  const binDir = name === 'runtime-reference' ? REFERENCE_BIN_DIR : BIN_DIR;
  const withSide = async (lab: Lab): Promise<T> => {
    const daemon = name === 'runtime-warm' ? await startDaemon(lab) : undefined;
    try {
      return await withSides(body, [...sides, { name, lab, binDir }]);
    } finally {
      await daemon?.stop();
    }
  };
  return await withHost(withSide, { directly: true });
}

async function contestant(
  { name, lab, binDir }: Side,
  plugin: string,
  { conf, isChained = false, ifname = 'eth0' }: Subject,
): Promise<Contestant> {
  const call = async (
    type: string,
    command: string,
    more: Conf,
    container: Container,
    prevResult?: unknown,
  ) => {
    const request = { cniVersion: '1.0.0', name: `${type}-alone`, type, ...more };
    const reply = await lab.plugin(type, { command, conf: request, container, ifname, binDir, prevResult });
    if (reply.exitCode !== 0) throw new Error(`Cannot ${command} with ${binDir}/${type}: ${reply.stdout}`);
    return reply.result;
  };
  const base = { bridge: 'br0', isDefaultGateway: true, ...ipamOf(lab, 70) };
  const attach = (one: Container) => (isChained ? call('bridge', 'ADD', base, one) : undefined);
  const own = conf(lab);
  const standing = await lab.container();
  const added = await call(plugin, 'ADD', own, standing, await attach(standing));
  const checks = await succeeds(`CHECK of ${plugin}, ${name}`, () =>
    call(plugin, 'CHECK', own, standing, added),
  );
  // The port is one that each round uses.
  if (plugin === 'portmap') await call(plugin, 'DEL', own, standing, added);
  const container = await lab.container();
  return {
    name,
    async round(i) {
      const one = renewed(container, i);
      const attached = await attach(one);
      let result: unknown;
      const ADD = await timed(async () => {
        result = await call(plugin, 'ADD', own, one, attached);
      });
      const CHECK = checks ? { CHECK: await timed(() => call(plugin, 'CHECK', own, one, result)) } : {};
      const DEL = await timed(() => call(plugin, 'DEL', own, one, result));
      if (isChained) await call('bridge', 'DEL', base, one, attached);
      return { ADD, ...CHECK, DEL };
    },
  };
}

function linesOf(plugin: string, samples: Samples): Row[] {
  const reference = 'runtime-reference';
  return (['ours', 'warm'] as const).flatMap(side =>
    ['ADD', 'CHECK', 'DEL'].map(verb => {
      const what = `${plugin} alone, ${side === 'warm' ? 'warm' : 'cold'}: ${verb}`;
      const target = side === 'warm' ? { target: TARGET } : {};
      return compare(samples, what, verb, { ours: `runtime-${side}`, reference, ...target });
    }),
  );
}

function ipamOf(lab: Lab, net: number): Conf {
  return { ipam: { type: 'host-local', subnet: `10.${net}.0.0/16`, dataDir: `${lab.tmp}/leases` } };
}

function port(hostPort: number): object {
  return { hostPort, containerPort: 80, protocol: 'tcp' };
}
