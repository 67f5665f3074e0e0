// How long does each plugin take when a runtime starts its executable: ours without and with a daemon, and the reference's?
import { TEST_PATH } from '../helpers/command.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { startDhcpServer } from '../helpers/dhcp-server.ts';
import { type Row as Conf, type Container, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { type Need, requiresUpperKind, requiresVlanDevices, requiresVrf } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';
import { type Contestant, renewed, type Samples, settle, takeTurns, timed } from './measure.ts';
import { compare, type Row } from './row.ts';
import { RUNTIME_SIDES, type RuntimeSide } from './sides.ts';
import { noteUnmeasured, succeeds } from './unmeasured.ts';

/** What every plugin and verb may take of the reference's time. */
const TARGET = 0.9;

/** Rounds that a daemon has served of a plugin before it is measured; bridge, which attaches the pods, has served more. */
const SETTLED_ROUNDS = 20;

/** A plugin and its configuration. */
interface Subject {
  /** @param device the device of the host to take: the pod that stays and the one that is measured have one each */
  readonly conf: (lab: Lab, device: string) => Conf;
  /** Devices of the host that must exist; they lead to the host itself. */
  readonly devices?: readonly string[];
  /** It works on a pod that bridge has attached; otherwise on an empty namespace. */
  readonly isChained?: boolean;
  readonly ifname?: string;
  /** Name of the plugin, unless it is the subject's. */
  readonly plugin?: string;
  /** Starts what it talks to, once bridge has attached a pod. */
  readonly serve?: (lab: Lab, side: RuntimeSide) => Promise<void>;
  /** Programs without which it cannot be measured. */
  readonly programs?: readonly string[];
  /** What else it needs: kernels lack kinds of devices. */
  readonly needs?: () => Need;
  /** What the reference does not do and its caller would have to, in the container once ADD has succeeded. */
  readonly besides?: (lab: Lab, container: Container, result: Conf) => Promise<void>;
}

/** Of `10.<net>.0.0/16`. */
const ASKED_NET = 77;

const DEVICES = { standing: 'up0', measured: 'up1' } as const;
/** A device carries either kind of the two. */
const UNDER = { macvlan: DEVICES.standing, ipvlan: 'up2' } as const;

/** Configurations that are common; main plugins include host-local, as a runtime starts it. */
const SUBJECTS: Readonly<Record<string, Subject>> = {
  bridge: { conf: lab => ({ bridge: 'br1', isDefaultGateway: true, ipMasq: true, ...ipamOf(lab, 71) }) },
  ptp: { conf: lab => ({ ipMasq: true, ...ipamOf(lab, 72) }) },
  // The reference uses an address without asking whether another host has it.
  macvlan: {
    conf: lab => ({ master: UNDER.macvlan, detectConflicts: false, ...ipamOf(lab, 75) }),
    devices: [UNDER.macvlan],
  },
  'macvlan, address asked for': {
    plugin: 'macvlan',
    conf: lab => ({ master: DEVICES.standing, ...ipamOf(lab, ASKED_NET) }),
    devices: [DEVICES.standing],
    besides: (lab, container, { ips }) => askForAddress(lab, container, ips[0].address.split('/')[0]),
    programs: ['arping'],
  },
  'host-device': {
    conf: (lab, device) => ({ device, ...ipamOf(lab, 76) }),
    devices: Object.values(DEVICES),
  },
  ipvlan: {
    conf: lab => ({ master: UNDER.ipvlan, ...ipamOf(lab, 80) }),
    devices: [UNDER.ipvlan],
    needs: () => requiresUpperKind('ipvlan'),
  },
  vlan: {
    conf: (lab, device) => ({
      ...{ master: DEVICES.standing, vlanId: device === DEVICES.standing ? 100 : 101 },
      ...{ detectConflicts: false, ...ipamOf(lab, 81) },
    }),
    devices: [DEVICES.standing],
    needs: requiresVlanDevices,
  },
  vrf: { conf: () => ({ vrfname: 'red' }), isChained: true, needs: requiresVrf },
  'host-local': { conf: lab => ipamOf(lab, 73) },
  // The reference uses an address without asking whether another host has it.
  dhcp: {
    conf: lab => ({ ipam: { type: 'dhcp', daemonSocketPath: socketOf(lab), detectConflicts: false } }),
    isChained: true,
    serve: serveLeases,
    programs: ['dnsmasq'],
  },
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

/**
 * A line for each plugin and verb, one at a time on a node that is not empty.
 * @param only names of plugins; undefined for all
 */
export async function aloneRows(rounds: number, only?: readonly string[]): Promise<Row[]> {
  const subjects = Object.entries(SUBJECTS).filter(
    ([name, subject]) => (only?.includes(subject.plugin ?? name) ?? true) && canRun(name, subject),
  );
  return await withSides(async sides => {
    const lines: Row[] = [];
    for (const [plugin, subject] of subjects) {
      const contestants: Contestant[] = [];
      for (const side of sides) contestants.push(await contestant(side, subject.plugin ?? plugin, subject));
      for (const one of contestants) if (one.name === 'runtime-warm') await settle(one, SETTLED_ROUNDS);
      lines.push(...linesOf(plugin, await takeTurns(contestants, rounds)));
    }
    return lines;
  });
}

/** Debian's arping is not among the packages that every test needs. */
function canRun(name: string, { programs = [], needs }: Subject): boolean {
  const missing = programs.find(program => Bun.which(program, { PATH: TEST_PATH }) === null);
  const reason =
    missing === undefined ? needs?.() : `"${missing}" is not installed (iputils-arping, dnsmasq-base)`;
  if (reason === undefined) return true;
  noteUnmeasured(name, reason);
  return false;
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
  { conf, devices = [], isChained = false, ifname = 'eth0', serve, besides }: Subject,
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
  for (const device of devices) await makeDevice(lab, device);
  const own = conf(lab, DEVICES.measured);
  const others = conf(lab, DEVICES.standing);
  const standing = await lab.container();
  const connected = await attach(standing);
  await serve?.(lab, name);
  const added = await call(plugin, 'ADD', others, standing, connected);
  const checks = await succeeds(`CHECK of ${plugin}, ${name}`, () =>
    call(plugin, 'CHECK', others, standing, added),
  );
  // The port is one that each round uses.
  if (plugin === 'portmap') await call(plugin, 'DEL', others, standing, added);
  const container = await lab.container();
  return {
    name,
    async round(i) {
      const one = renewed(container, i);
      const attached = await attach(one);
      let result: unknown;
      const ADD = await timed(async () => {
        result = await call(plugin, 'ADD', own, one, attached);
        if (name === 'runtime-reference') await besides?.(lab, one, result as Conf);
      });
      const CHECK = checks ? { CHECK: await timed(() => call(plugin, 'CHECK', own, one, result)) } : {};
      const DEL = await timed(() => call(plugin, 'DEL', own, one, result));
      if (isChained) await call('bridge', 'DEL', base, one, attached);
      return { ADD, ...CHECK, DEL };
    },
  };
}

/** Makes a device of the host that is up, unless an earlier subject has made it. */
async function makeDevice(lab: Lab, device: string): Promise<void> {
  if ((await lab.ip(lab.host, 'link')).some(({ ifname }) => ifname === device)) return;
  await lab.ip(lab.host, 'link', 'add', device, 'type', 'veth', 'peer', 'name', `far-${device}`);
  for (const end of [device, `far-${device}`]) await lab.ip(lab.host, 'link', 'set', end, 'up');
  // The gateway of the subject that asks for its address, as networks have one.
  await lab.ip(lab.host, 'address', 'add', `10.${ASKED_NET}.0.1/32`, 'dev', `far-${device}`);
}

/** A server on the bridge of the pods, and the daemon that the reference's plugin asks. */
async function serveLeases(lab: Lab, side: RuntimeSide): Promise<void> {
  await lab.ip(lab.host, 'address', 'add', '10.79.0.1/24', 'dev', 'br0');
  await startDhcpServer(lab, lab.host, 'br0', { range: ['10.79.0.50', '10.79.0.250'] });
  if (side !== 'runtime-reference') return;
  lab.start(lab.host, [`${REFERENCE_BIN_DIR}/dhcp`, 'daemon', '-socketpath', socketOf(lab)]);
  await until(async () => (await lab.run(lab.host, ['test', '-S', socketOf(lab)])).exitCode === 0);
}

function socketOf(lab: Lab): string {
  return `${lab.tmp}/dhcp.sock`;
}

/** What a caller of the reference starts who wants to know that no other host has the address: one probe, and a second for the answer. */
async function askForAddress(lab: Lab, container: Container, address: string): Promise<void> {
  const asked = await lab.run(container, ['arping', '-D', '-q', '-c', '1', '-I', 'eth0', address]);
  if (asked.exitCode !== 0) throw new Error(`Cannot ask for ${address}: ${asked.stderr}`);
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
