// How do the meta plugins of both sides handle their options, behind a bridge?

import type { Row as Json } from '../../helpers/netns.ts';
import { FAILURE, type Ground, LIFE, type Step, type TwinRow } from '../row.ts';
import { both, bridged, HOST_LOCAL, ipTool, mapped, outside, SERVE, V4 } from './parts.ts';

const MAIN = bridged(both(), { isDefaultGateway: true, hairpinMode: true });
const MAIN_V4 = bridged({ ...HOST_LOCAL, ranges: [V4] }, { isDefaultGateway: true, hairpinMode: true });

const WEB = { hostPort: 8080, containerPort: 80, protocol: 'tcp' };
const TWO: readonly Step[] = ['ADD', { verb: 'ADD', container: 2, more: { runtimeConfig: {} } }];

const FAST = {
  ingressRate: 100_000_000,
  ingressBurst: 10_000_000,
  egressRate: 50_000_000,
  egressBurst: 5_000_000,
};

const SLOW = { ingressRate: 8_000_000, ingressBurst: 800_000 };

const BANDWIDTH_ROWS: readonly TwinRow[] = [
  bandwidth('both directions', FAST),
  bandwidth('ingress', { ingressRate: 8_000_000, ingressBurst: 800_000 }),
  bandwidth('egress', { egressRate: 8_000_000, egressBurst: 800_000 }),
  bandwidth('no limits', {}),
  bandwidth('limits of 0', { ingressRate: 0, ingressBurst: 0, egressRate: 0, egressBurst: 0 }),
  { ...bandwidth('from runtimeConfig', {}), more: { runtimeConfig: { bandwidth: FAST } } },
  {
    ...bandwidth('configured before runtimeConfig', { ingressRate: 8_000_000, ingressBurst: 800_000 }),
    more: { runtimeConfig: { bandwidth: FAST } },
  },
  {
    ...bandwidth('a configured 0 before runtimeConfig', { ingressRate: 0 }),
    more: { runtimeConfig: { bandwidth: FAST } },
  },
  { ...bandwidth('version 0.4.0', FAST), cniVersion: '0.4.0' },
  { ...bandwidth('version 0.2.0', FAST), cniVersion: '0.2.0', steps: FAILURE },
  bandwidth('rate of a terabit', { ingressRate: 1_000_000_000_000, ingressBurst: 8_000_000_000 }),
  bandwidth('largest burst of runtimes', { ingressRate: 1_000_000, ingressBurst: 2_147_483_647 }),
  bandwidth('burst smaller than a frame', { ingressRate: 8_000_000, ingressBurst: 8_000 }),
  { ...bandwidth('rate without burst', { ingressRate: 8_000_000 }), steps: FAILURE },
  { ...bandwidth('burst without rate', { egressBurst: 8_000_000 }), steps: FAILURE },
  { ...bandwidth('burst too large', { egressRate: 1_000, egressBurst: 34_359_738_368 }), steps: FAILURE },
  { ...bandwidth('negative rate', { ingressRate: -1, ingressBurst: 1 }), steps: FAILURE },
  { ...bandwidth('rate as text', { ingressRate: '1', ingressBurst: 1 }), steps: FAILURE },
  { name: 'bandwidth, first in the chain', plugins: [{ type: 'bandwidth', ...FAST }], steps: FAILURE },
  {
    ...bandwidth('ADD twice', FAST),
    steps: [
      'ADD',
      { verb: 'ADD', label: 'ADD again', plugins: [{ type: 'bandwidth', ...FAST }], prevResult: 'last' },
      'DEL',
    ],
  },
  {
    ...bandwidth('DEL alone', FAST),
    steps: ['ADD', { verb: 'DEL', label: 'DEL of one', plugins: [{ type: 'bandwidth', ...FAST }] }, 'DEL'],
  },
  { ...bandwidth('DEL after the namespace', FAST), steps: ['ADD', { verb: 'DEL', netns: 'gone' }] },
  {
    ...bandwidth('CHECK: the bucket is another', { ingressRate: 8_000_000, ingressBurst: 800_000 }),
    steps: [
      'ADD',
      { verb: 'CHECK', plugins: [{ type: 'bandwidth', ingressRate: 9_000_000, ingressBurst: 800_000 }] },
      'DEL',
    ],
  },
];

/** Debian's release does not know the lists: it limits everything. */
const SUBNET_ROWS: readonly TwinRow[] = [
  bandwidth('unshapedSubnets', { ...FAST, unshapedSubnets: ['10.0.0.0/8', 'fd00::/8'] }),
  bandwidth('shapedSubnets', { ...FAST, shapedSubnets: ['192.0.2.0/24', '2001:db8::/32'] }),
  {
    ...bandwidth('unshapedSubnets from runtimeConfig', {}),
    more: { runtimeConfig: { bandwidth: { ...FAST, unshapedSubnets: ['10.0.0.0/8'] } } },
  },
  {
    ...bandwidth('unshapedSubnets, limits from runtimeConfig', { unshapedSubnets: ['10.0.0.0/8'] }),
    more: { runtimeConfig: { bandwidth: FAST } },
  },
  {
    ...bandwidth('unshapedSubnets, DEL after the namespace', { ...FAST, unshapedSubnets: ['10.0.0.0/8'] }),
    steps: ['ADD', { verb: 'DEL', netns: 'gone' }],
  },
  bandwidth('empty lists of subnets', { ...FAST, shapedSubnets: [], unshapedSubnets: [] }),
  bandwidth('subnets without limits', { shapedSubnets: ['10.0.0.0/8'], unshapedSubnets: ['nonsense'] }),
  {
    ...bandwidth('both lists of subnets', {
      ...FAST,
      shapedSubnets: ['10.0.0.0/8'],
      unshapedSubnets: ['fd00::/8'],
    }),
    steps: FAILURE,
  },
  { ...bandwidth('a subnet that is none', { ...FAST, shapedSubnets: ['hello'] }), steps: FAILURE },
];

/** Lives in which others interfere with the devices. */
const MEDDLED_ROWS: readonly TwinRow[] = [
  {
    ...bandwidth('CHECK: no bucket left', { ingressRate: 8_000_000, ingressBurst: 800_000 }),
    steps: [
      'ADD',
      { verb: 'CHECK', plugins: [{ type: 'bandwidth', ...SLOW }], before: tcTool('qdisc del', 'root') },
      'DEL',
    ],
  },
  {
    ...bandwidth('CHECK: no redirect left', FAST),
    steps: [
      'ADD',
      { verb: 'CHECK', plugins: [{ type: 'bandwidth', ...FAST }], before: tcTool('qdisc del', 'ingress') },
      'DEL',
    ],
  },
  {
    ...bandwidth('rate with a unit', { ingressRate: '8Mbit', ingressBurst: '100kB' }),
    steps: FAILURE,
  },
  {
    ...bandwidth('DEL without the limits', FAST),
    steps: ['ADD', { verb: 'DEL', label: 'DEL of one', plugins: [{ type: 'bandwidth' }] }, 'DEL'],
  },
  {
    ...bandwidth('a clsact qdisc of others', FAST),
    steps: [
      { verb: 'ADD', plugins: [MAIN_V4] },
      {
        verb: 'ADD',
        label: 'ADD after it',
        plugins: [{ type: 'bandwidth', ...FAST }],
        prevResult: 'last',
        before: tcTool('qdisc add', 'clsact'),
      },
      'DEL',
    ],
  },
];

const TUNING_ROWS: readonly TwinRow[] = [
  tuning('sysctl', { sysctl: { 'net.core.somaxconn': '321', 'net.ipv4.conf.IFNAME.arp_filter': '1' } }),
  tuning('sysctl with slashes', { sysctl: { 'net/ipv4/conf/eth0/log_martians': '1' } }),
  tuning('mtu', { mtu: 1380 }),
  tuning('mac', { mac: '02:00:00:00:00:0a' }),
  tuning('promisc', { promisc: true }),
  tuning('allmulti', { allmulti: true }),
  tuning('txQLen', { txQLen: 500 }),
  tuning('all at once', {
    mac: '02:00:00:00:00:0a',
    mtu: 1380,
    promisc: true,
    allmulti: true,
    txQLen: 500,
    sysctl: { 'net.core.somaxconn': '321' },
  }),
  tuning('nothing', {}),
  tuning('off', { promisc: false, allmulti: false, mtu: 0, mac: '' }),
  tuning('txQLen of 0', { txQLen: 0 }),
  tuning('mac with hyphens', { mac: '02-00-00-00-00-0A' }),
  tuning('mac with dots', { mac: '0200.0000.000a' }),
  tuning('sysctl with several values', { sysctl: { 'net.ipv4.ip_local_port_range': '20000 30000' } }),
  tuning('sysctl with the placeholder twice', { sysctl: { 'net.ipv4.conf.IFNAME.IFNAME': '1' } }),
  {
    ...tuning('values switched off by args.cni', { mtu: 1390, mac: '02:00:00:00:00:0a' }),
    more: { args: { cni: { mtu: 0, mac: '' } } },
  },
  {
    ...tuning('unknown CNI_ARGS', { mtu: 1390 }),
    args: 'SOMETHING=1',
    steps: FAILURE,
  },
  {
    ...tuning('mac from CNI_ARGS', { mac: '02:00:00:00:00:0a' }),
    args: 'IgnoreUnknown=1;MAC=02:00:00:00:00:0b',
  },
  { ...tuning('mac from runtimeConfig', {}), more: { runtimeConfig: { mac: '02:00:00:00:00:0c' } } },
  {
    ...tuning('all from args.cni', { mtu: 1390, sysctl: {} }),
    more: {
      args: {
        cni: {
          mac: '02:00:00:00:00:0d',
          mtu: 1370,
          promisc: true,
          allmulti: true,
          txQLen: 400,
          sysctl: { 'net.core.somaxconn': '322' },
        },
      },
    },
  },
  { ...tuning('sysctl out of net', { sysctl: { 'kernel.hostname': 'x' } }), steps: FAILURE },
  { ...tuning('sysctl that does not exist', { sysctl: { 'net.core.no_such_key': '1' } }), steps: FAILURE },
  { ...tuning('sysctl with a number', { sysctl: { 'net.core.somaxconn': 321 } }), steps: FAILURE },
  { ...tuning('mac that is none', { mac: 'zz' }), steps: FAILURE },
  { ...tuning('mtu that the kernel refuses', { mtu: 70_000 }), steps: FAILURE },
  {
    name: 'tuning, first in the chain',
    plugins: [{ type: 'tuning', dataDir: '{tmp}/tuning', mtu: 1380 }],
    steps: FAILURE,
  },
  {
    ...tuning('ADD twice', { mtu: 1380 }),
    steps: [
      'ADD',
      {
        verb: 'ADD',
        label: 'ADD again',
        plugins: [{ type: 'tuning', dataDir: '{tmp}/tuning', mtu: 1370 }],
        prevResult: 'last',
      },
      { verb: 'DEL', label: 'DEL of one', plugins: [{ type: 'tuning', dataDir: '{tmp}/tuning' }] },
      'DEL',
    ],
  },
  {
    ...tuning('DEL alone', { mtu: 1380, sysctl: { 'net.core.somaxconn': '321' } }),
    steps: [
      'ADD',
      { verb: 'DEL', label: 'DEL of one', plugins: [{ type: 'tuning', dataDir: '{tmp}/tuning' }] },
      'DEL',
    ],
  },
  { ...tuning('DEL after the namespace', { mtu: 1380 }), steps: ['ADD', { verb: 'DEL', netns: 'gone' }] },
  {
    ...tuning('CHECK: another MTU', { mtu: 1380 }),
    steps: [
      'ADD',
      { verb: 'CHECK', before: ground => ipTool(ground, 'link set eth0 mtu 1390', ground.containers[0]) },
      'DEL',
    ],
  },
  {
    ...tuning('CHECK: another sysctl', { sysctl: { 'net.core.somaxconn': '321' } }),
    steps: [
      'ADD',
      {
        verb: 'CHECK',
        before: async ({ lab, containers: [one] }) => void (await lab.sysctl(one, 'net/core/somaxconn', 99)),
      },
      'DEL',
    ],
  },
];

const FULL = [
  { ...MAIN, ipMasq: true },
  { type: 'portmap' },
  { type: 'bandwidth', ...FAST },
  { type: 'tuning', dataDir: '{tmp}/tuning', mtu: 1400, sysctl: { 'net.core.somaxconn': '321' } },
];

const WHOLE_ROWS: readonly TwinRow[] = [
  ...['0.3.1', '0.4.0', '1.0.0'].map(cniVersion => ({
    name: `whole chain, version ${cniVersion}`,
    cniVersion,
    plugins: FULL,
    more: ports([WEB]),
    prepare: outside,
    steps: [
      ...TWO,
      SERVE,
      mapped({ tcp: 8080 }),
      'DEL' as const,
      { verb: 'DEL' as const, label: 'DEL again' },
    ],
  })),
  {
    name: 'whole chain, DEL after the namespace',
    plugins: FULL,
    more: ports([WEB]),
    steps: ['ADD', { verb: 'DEL', netns: 'gone' }],
  },
  {
    name: 'whole chain, the last link fails',
    plugins: [
      ...FULL.slice(0, 3),
      { type: 'tuning', dataDir: '{tmp}/tuning', sysctl: { 'net.core.no_such_key': '1' } },
    ],
    more: ports([WEB]),
    steps: FAILURE,
  },
];

/** All rows of plugins that shape and tune, and of whole chains. */
export const CHAIN_ROWS: readonly TwinRow[] = [
  ...BANDWIDTH_ROWS,
  ...SUBNET_ROWS,
  ...MEDDLED_ROWS,
  ...TUNING_ROWS,
  ...WHOLE_ROWS,
];

function ports(portMappings: readonly Json[]): Json {
  return { runtimeConfig: { portMappings } };
}

function bandwidth(name: string, options: Json): TwinRow {
  return { name: `bandwidth, ${name}`, plugins: [MAIN_V4, { type: 'bandwidth', ...options }], steps: LIFE };
}

/** Runs `tc` on the host end of container 1. */
function tcTool(verb: string, place: string): (ground: Ground) => Promise<void> {
  return async ({ lab, containers: [one] }) => {
    const [inside] = await lab.ip(one, 'link', 'show', 'eth0');
    const [veth] = (await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).filter(
      ({ ifindex }) => ifindex === inside?.link_index,
    );
    await lab.tc(lab.host, ...verb.split(' '), 'dev', veth?.ifname, place);
  };
}

function tuning(name: string, options: Json): TwinRow {
  return {
    name: `tuning, ${name}`,
    plugins: [MAIN_V4, { type: 'tuning', dataDir: '{tmp}/tuning', ...options }],
    steps: LIFE,
  };
}
