// Which networks does a node of the storm have?
//
// All are small, so that everything collides. The IPv6 range of `a` is larger than its IPv4 range: addresses of one family
// come back soon, those of the other are new each time.

import type { NetLetter, Target } from './history.ts';

/** A network of a node. */
export interface Net {
  readonly letter: NetLetter;
  readonly name: string;
  readonly ifname: string;
  /** The device of the host by which all containers are reached: a bridge, or the far end of the master. */
  readonly bridge?: string;
  /** Containers answer the host. */
  readonly isReached: boolean;
  /** The list as text, as in a file. */
  readonly source: string;
  readonly list: { readonly cniVersion: string; readonly plugins: readonly PluginConf[] };
  /** Bytes per second in each direction; none without a limit. */
  readonly rate?: number;
  /** How its IPv4 addresses begin, if containers route by the source of their packets. */
  readonly sbr?: string;
  /** Value of net.core.somaxconn in containers. */
  readonly somaxconn?: number;
  /** Ports of the host lead to its containers, and can be changed. */
  readonly hasPorts: boolean;
}

export type PluginConf = { readonly type: string } & Readonly<Record<string, unknown>>;

const RATE_BITS = 400_000_000;
/** Limits that a change sets, in bytes per second. */
export const RATES: readonly number[] = [25_000_000, 50_000_000, 100_000_000];
const SOMAXCONN = 321;
const PORTMAP = { type: 'portmap', capabilities: { portMappings: true } };

function bridgeConf(bridge: string, v4: string, v6: string, ipam: string, more: object = {}): PluginConf {
  const ranges = [[{ subnet: v4 }], [{ subnet: v6 }]];
  return { type: 'bridge', bridge, isGateway: true, ...more, ipam: { type: ipam, ranges } };
}

type Parts = Omit<Net, 'source' | 'list' | 'name' | 'hasPorts' | 'isReached'> & { readonly isReached?: true };

function netOf(net: Parts, cniVersion: string, plugins: PluginConf[]): Net {
  const list = { cniVersion, name: `net-${net.letter}`, plugins };
  const isReached = net.isReached ?? net.bridge !== undefined;
  const hasPorts = plugins.includes(PORTMAP);
  return { ...net, isReached, hasPorts, name: list.name, list, source: JSON.stringify(list) };
}

/** The device that macvlans are made on, and the host that is all of the network behind it: the node itself. */
export const LAN = { master: 'up0', far: 'far0', subnet: '10.91.0.0/29', gateway: '10.91.0.1/29' } as const;

// What calls host-local by its name has a version that the reference's knows, which a swap puts in its place.
export const NETS: Readonly<Record<NetLetter, Net>> = {
  // Shared with the reference's plugins.
  a: netOf({ letter: 'a', ifname: 'eth0', bridge: 'br0' }, '1.0.0', [
    bridgeConf('br0', '10.88.0.0/29', 'fd88::/120', 'host-local'),
    PORTMAP,
  ]),
  // All that we have.
  b: netOf(
    { letter: 'b', ifname: 'eth1', bridge: 'br1', rate: RATE_BITS / 8, somaxconn: SOMAXCONN },
    '1.1.0',
    [
      // Has bridge do it, and remembers with what.
      {
        type: 'flannel',
        dataDir: '/var/lib/flannel',
        delegate: { bridge: 'br1', ipMasq: true, hairpinMode: true },
      },
      PORTMAP,
      {
        type: 'bandwidth',
        ...{ ingressRate: RATE_BITS, ingressBurst: 4_000_000, egressRate: RATE_BITS, egressBurst: 4_000_000 },
      },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': String(SOMAXCONN) } },
      { type: 'firewall' },
    ],
  ),
  f: netOf({ letter: 'f', ifname: 'eth2', bridge: 'br2' }, '1.1.0', [
    bridgeConf('br2', '10.90.0.0/29', 'fd90::/125', 'gate-ipam'),
    PORTMAP,
  ]),
  // On the network of a device of the host, where each address is asked for before it is used.
  m: netOf({ letter: 'm', ifname: 'eth3', bridge: LAN.far }, '1.0.0', [
    { type: 'macvlan', master: LAN.master, ipam: { type: 'host-local', ranges: [[{ subnet: LAN.subnet }]] } },
  ]),
  // A device of the host for each container, whose routes hold for its own addresses alone.
  p: netOf({ letter: 'p', ifname: 'eth5', isReached: true, sbr: '10.93.0.' }, '1.0.0', [
    {
      type: 'ptp',
      ipMasq: true,
      ipam: {
        type: 'host-local',
        ranges: [[{ subnet: '10.93.0.0/29' }], [{ subnet: 'fd93::/125' }]],
        routes: [{ dst: '10.99.0.0/16' }],
      },
    },
    PORTMAP,
    { type: 'sbr' },
  ]),
  // Packets of it go to a program of the container, which none has.
  t: netOf({ letter: 't', ifname: 'eth4' }, '1.0.0', [
    { type: 'tap', ipam: { type: 'host-local', ranges: [[{ subnet: '10.92.0.0/29' }]] } },
  ]),
};

/** What flanneld would say of the node, for network `b`, where flannel reads it. */
export const SUBNETS = {
  file: '/run/flannel/subnet.env',
  text: `FLANNEL_NETWORK=10.89.0.0/16
FLANNEL_SUBNET=10.89.0.1/29
FLANNEL_IPV6_NETWORK=fd89::/112
FLANNEL_IPV6_SUBNET=fd89::1/125
FLANNEL_MTU=1500
FLANNEL_IPMASQ=true
`,
} as const;

export const LETTERS = Object.keys(NETS) as NetLetter[];

/** How many of each there are. */
export const PODS = 6;
export const SLOTS = 5;

/** Ports of the host that pods ask for, whatever the network. */
export const HOST_PORTS = [8080, 8081, 8082];

/** Two ports of the host for each attachment, which no other one asks for. */
export function ownPorts({ pod, net }: Target): readonly [number, number] {
  const first = 9000 + 10 * pod + 2 * LETTERS.indexOf(net);
  return [first, first + 1];
}

/** The port on which something listens in each namespace. */
export const LISTEN_PORT = 80;

export function podId(pod: number): string {
  return `pod-${pod}`;
}

export function slotName(slot: number): string {
  return `n${slot}`;
}

export function slotPath(slot: number): string {
  return `/run/netns/${slotName(slot)}`;
}

/** Name of an attachment in the model. */
export function keyOf({ pod, net }: Target): string {
  return `${net}${pod}`;
}

/** The note that our plugins leave in the kernel. */
export function noteOf({ pod, net }: Target): string {
  return `catena:${NETS[net].name}/${podId(pod)}/${NETS[net].ifname}`;
}
