// How does the bridge plugin of both sides handle its options?

import { ping } from '../../helpers/traffic.ts';
import { FAILURE, LIFE, LIFE_WITHOUT_CHECK, type Probe, type Step, type TwinRow } from '../row.ts';
import {
  BRIDGE,
  both,
  bridged,
  bridgeExists,
  forwarding,
  HOST_LOCAL,
  ipTool,
  outside,
  resolvConf,
  SEEN_OUTSIDE,
  V4,
  V6,
} from './parts.ts';

const IPAM_V4 = { ...HOST_LOCAL, ranges: [V4] };
const IPAM_V6 = { ...HOST_LOCAL, ranges: [V6] };

const SPOOFING: Probe = {
  probe: 'spoofing',
  async ask(ground) {
    const { lab, containers } = ground;
    const reaches = () => ping(lab, containers[0], '10.88.0.1');
    const [link] = await lab.ip(containers[0], 'link', 'show', 'eth0');
    const own = await reaches();
    await ipTool(ground, 'link set eth0 address 02:00:00:00:00:99', containers[0]);
    const other = await reaches();
    await ipTool(ground, `link set eth0 address ${link?.address}`, containers[0]);
    return { 'with its own address': own, 'with another': other, 'with its own again': await reaches() };
  },
};

const VERSIONS: readonly TwinRow[] = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', undefined].map(
  cniVersion => ({
    name: `bridge, both families, version ${cniVersion ?? 'left out'}`,
    cniVersion,
    plugins: [bridged(both(), { isDefaultGateway: true })],
    steps: ['0.4.0', '1.0.0'].includes(cniVersion ?? '') ? LIFE : LIFE_WITHOUT_CHECK,
  }),
);

const OPTIONS: readonly TwinRow[] = [
  { name: 'bridge, IPv4, no gateway', plugins: [bridged(IPAM_V4)] },
  { name: 'bridge, IPv6, no gateway', plugins: [bridged(IPAM_V6)] },
  { name: 'bridge, IPv4, isGateway', plugins: [bridged(IPAM_V4, { isGateway: true })] },
  { name: 'bridge, IPv6, isDefaultGateway', plugins: [bridged(IPAM_V6, { isDefaultGateway: true })] },
  { name: 'bridge, default name', plugins: [{ type: 'bridge', isGateway: true, ipam: IPAM_V4 }] },
  {
    name: 'bridge, keys in other letter cases',
    plugins: [{ ...BRIDGE, ISGATEWAY: true, Mtu: 1400, ipam: IPAM_V4 }],
  },
  { name: 'bridge, unknown keys', plugins: [bridged(IPAM_V4, { whatever: { a: [1] }, isGateway: true })] },
  { name: 'bridge, mtu', plugins: [bridged(both(), { mtu: 1380, isGateway: true })] },
  { name: 'bridge, negative mtu', plugins: [bridged(IPAM_V4, { mtu: -5 })] },
  { name: 'bridge, hairpinMode', plugins: [bridged(IPAM_V4, { hairpinMode: true })] },
  { name: 'bridge, promiscMode', plugins: [bridged(IPAM_V4, { promiscMode: true })] },
  { name: 'bridge, enabledad', plugins: [bridged(both(), { enabledad: true, isGateway: true })] },
  {
    name: 'bridge, dns',
    plugins: [
      bridged(IPAM_V4, {
        dns: { nameservers: ['192.0.2.53'], domain: 'a.test', search: ['b.test'], options: ['ndots:2'] },
      }),
    ],
  },
  {
    name: 'bridge, empty nameservers replace those of IPAM',
    plugins: [bridged({ ...IPAM_V4, resolvConf: '{tmp}/resolv.conf' }, { dns: { nameservers: [] } })],
    prepare: resolvConf,
  },
  {
    name: 'bridge, two range sets of IPv6',
    plugins: [bridged({ ...HOST_LOCAL, ranges: [V6, [{ subnet: 'fd89::/64' }]] }, { isGateway: true })],
  },
  {
    name: 'bridge, two range sets of IPv4 without gateway',
    plugins: [bridged({ ...HOST_LOCAL, ranges: [V4, [{ subnet: '10.89.0.0/24' }]] })],
  },
  {
    name: 'bridge, two range sets of IPv4 with gateways',
    plugins: [bridged({ ...HOST_LOCAL, ranges: [V4, [{ subnet: '10.89.0.0/24' }]] }, { isGateway: true })],
  },
  {
    name: 'bridge, two range sets of IPv4 with gateways, forceAddress',
    plugins: [
      bridged(
        { ...HOST_LOCAL, ranges: [V4, [{ subnet: '10.89.0.0/24' }]] },
        { isGateway: true, forceAddress: true },
      ),
    ],
  },
  {
    name: 'bridge, gateway that the range names',
    plugins: [
      bridged(
        { ...HOST_LOCAL, ranges: [[{ subnet: '10.88.0.0/24', gateway: '10.88.0.254' }]] },
        { isDefaultGateway: true },
      ),
    ],
  },
  {
    name: 'bridge, routes',
    plugins: [
      bridged(
        {
          ...both(),
          routes: [
            { dst: '192.0.2.0/24' },
            { dst: '198.51.100.0/24', gw: '10.88.0.77' },
            { dst: '2001:db8::/32' },
            { dst: '2001:db8:1::/48', gw: 'fd88::77' },
          ],
        },
        { isGateway: true },
      ),
    ],
  },
  {
    name: 'bridge, default routes of IPAM with gateway',
    plugins: [
      bridged(
        {
          ...both(),
          routes: [
            { dst: '0.0.0.0/0', gw: '10.88.0.9' },
            { dst: '::/0', gw: 'fd88::9' },
          ],
        },
        { isDefaultGateway: true },
      ),
    ],
  },
  {
    name: 'bridge, default route of IPAM without gateway',
    plugins: [bridged({ ...IPAM_V4, routes: [{ dst: '0.0.0.0/0' }] }, { isDefaultGateway: true })],
  },
  {
    name: 'bridge, default routes of IPAM, isGateway only',
    plugins: [bridged({ ...both(), routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] }, { isGateway: true })],
  },
  { name: 'bridge, no IPAM', plugins: [{ ...BRIDGE }], steps: ['ADD', 'DEL'] },
  { name: 'bridge, empty IPAM', plugins: [{ ...BRIDGE, ipam: {} }], steps: ['ADD', 'DEL'] },
  { name: 'bridge, no IPAM, CHECK', plugins: [{ ...BRIDGE }] },
  { name: 'bridge, no IPAM, version 0.2.0', cniVersion: '0.2.0', plugins: [{ ...BRIDGE }], steps: FAILURE },
  {
    name: 'bridge, macspoofchk',
    plugins: [bridged(IPAM_V4, { macspoofchk: true, isGateway: true })],
    steps: ['ADD', SPOOFING, 'CHECK', 'DEL', { verb: 'DEL', label: 'DEL again' }],
  },
  { name: 'bridge, vlan', plugins: [bridged(IPAM_V4, { vlan: 100 })], steps: FAILURE },
  {
    name: 'bridge, ipMasq',
    plugins: [bridged(both(), { ipMasq: true, isDefaultGateway: true })],
    prepare: outside,
    steps: ['ADD', SEEN_OUTSIDE, 'CHECK', 'DEL', { verb: 'DEL', label: 'DEL again' }],
  },
  {
    name: 'bridge, ipMasq, iptables',
    plugins: [bridged(both(), { ipMasq: true, ipMasqBackend: 'iptables', isDefaultGateway: true })],
    wholePacketFilter: true,
  },
  {
    name: 'bridge, without ipMasq',
    plugins: [bridged(both(), { isDefaultGateway: true })],
    prepare: outside,
    steps: ['ADD', SEEN_OUTSIDE, 'DEL'],
  },
];

const HARDWARE_ADDRESSES: readonly TwinRow[] = [
  {
    name: 'bridge, mac from CNI_ARGS',
    plugins: [bridged(IPAM_V4)],
    args: 'IgnoreUnknown=1;MAC=02:00:00:00:00:0a',
  },
  {
    name: 'bridge, mac from args.cni',
    plugins: [bridged(IPAM_V4)],
    more: { args: { cni: { mac: '02-00-00-00-00-0b' } } },
    args: 'IgnoreUnknown=1;MAC=02:00:00:00:00:0a',
  },
  {
    name: 'bridge, mac from runtimeConfig',
    plugins: [bridged(IPAM_V4)],
    more: { runtimeConfig: { mac: '0200.0000.000c' }, args: { cni: { mac: '02:00:00:00:00:0b' } } },
    args: 'IgnoreUnknown=true;MAC=02:00:00:00:00:0a',
  },
  {
    name: 'bridge, mac that is none',
    plugins: [bridged(IPAM_V4)],
    more: { runtimeConfig: { mac: '02:00:00:00:00' } },
    steps: FAILURE,
  },
  {
    name: 'bridge, mac of a group',
    plugins: [bridged(IPAM_V4)],
    more: { runtimeConfig: { mac: '01:00:5e:00:00:01' } },
    steps: FAILURE,
  },
];

/** What the host has set for itself, and what forwarding and IPv6 of containers do to that. */
const HOSTS: readonly TwinRow[] = [
  {
    name: 'bridge, an uplink that listens to routers',
    plugins: [bridged(IPAM_V6, { isGateway: true })],
    prepare: ground => ipTool(ground, 'link add up0 type veth peer name up1'),
  },
  {
    name: 'bridge, IPv6 disabled by default',
    plugins: [bridged(IPAM_V6, { isGateway: true })],
    prepare: async ({ lab }) => {
      await lab.sysctl(lab.host, 'net/ipv6/conf/default/disable_ipv6', 1);
    },
  },
];

const EXISTING: readonly TwinRow[] = [
  {
    name: 'bridge exists, with our gateway',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    prepare: bridgeExists('address 02:00:00:00:00:01', ['10.88.0.1/24']),
  },
  {
    name: 'bridge exists, with a foreign IPv4 address',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    prepare: bridgeExists('address 02:00:00:00:00:01', ['10.99.0.1/24']),
  },
  {
    name: 'bridge exists, with an overlapping IPv4 address',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    prepare: bridgeExists('address 02:00:00:00:00:01', ['10.88.0.2/16']),
    steps: FAILURE,
  },
  {
    name: 'bridge exists, overlapping IPv4, forceAddress',
    plugins: [bridged(IPAM_V4, { isGateway: true, forceAddress: true })],
    prepare: bridgeExists('address 02:00:00:00:00:01', ['10.88.0.1/16']),
  },
  {
    name: 'bridge exists, with a foreign IPv6 address',
    plugins: [bridged(IPAM_V6, { isGateway: true })],
    prepare: bridgeExists('address 02:00:00:00:00:01', ['fd99::1/64']),
  },
  {
    name: 'bridge exists, overlapping IPv6',
    plugins: [bridged(IPAM_V6, { isGateway: true })],
    prepare: bridgeExists('address 02:00:00:00:00:01', ['fd88::5/48']),
    steps: FAILURE,
  },
  {
    name: 'bridge exists, overlapping IPv6, forceAddress',
    plugins: [bridged(IPAM_V6, { isGateway: true, forceAddress: true })],
    prepare: bridgeExists('address 02:00:00:00:00:01', ['fd88::5/48']),
  },
  {
    name: 'bridge exists, down, with another MTU',
    plugins: [bridged(IPAM_V4, { mtu: 1400 })],
    prepare: bridgeExists('address 02:00:00:00:00:01 mtu 1300', []),
  },
  {
    name: 'bridge exists, with another port',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    prepare: async ground => {
      await bridgeExists('address 02:00:00:00:00:01', [])(ground);
      await ipTool(
        ground,
        'link add p0 address 02:00:00:00:00:05 type veth peer name p1',
        'link set p0 master br0 up',
      );
    },
  },
  {
    name: 'bridge is another kind of device',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    prepare: ground => ipTool(ground, 'link add br0 type veth peer name br1'),
    steps: FAILURE,
  },
];

const LIVES: readonly TwinRow[] = [
  {
    name: 'bridge, two containers',
    plugins: [bridged(both(), { isDefaultGateway: true })],
    steps: [
      'ADD',
      { verb: 'ADD', container: 2 },
      {
        probe: 'each other',
        ask: async ({ lab, containers: [one] }) => ({
          v4: await ping(lab, one, '10.88.0.3'),
          v6: await ping(lab, one, 'fd88::3'),
        }),
      },
      'CHECK',
      'DEL',
      { verb: 'CHECK', container: 2 },
      { verb: 'DEL', container: 2 },
    ],
  },
  {
    name: 'bridge, two interfaces of one container',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    steps: ['ADD', { verb: 'ADD', ifname: 'net1' }, { verb: 'DEL', ifname: 'net1' }, 'CHECK', 'DEL'],
  },
  {
    name: 'bridge, ADD twice',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    steps: ['ADD', { verb: 'ADD', label: 'ADD again' }, 'DEL'],
  },
  {
    name: 'bridge, ADD after DEL',
    plugins: [bridged(both(), { isGateway: true })],
    steps: ['ADD', 'DEL', { verb: 'ADD', label: 'ADD again' }, 'DEL'],
  },
  {
    name: 'bridge, DEL without ADD',
    plugins: [bridged(both(), { isGateway: true, ipMasq: true })],
    steps: ['DEL'],
  },
  {
    name: 'bridge, DEL without namespace',
    plugins: [bridged(both(), { isGateway: true })],
    steps: ['ADD', { verb: 'DEL', netns: 'none' }],
  },
  {
    name: 'bridge, DEL after the namespace',
    plugins: [bridged(both(), { isGateway: true, ipMasq: true })],
    steps: ['ADD', { verb: 'DEL', netns: 'gone' }],
  },
  {
    name: 'bridge, DEL with a file that is no namespace',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    steps: ['ADD', { verb: 'DEL', netns: 'no namespace' }],
  },
  {
    name: 'bridge, DEL without prevResult',
    plugins: [bridged(both(), { isGateway: true, ipMasq: true })],
    steps: ['ADD', { verb: 'DEL', prevResult: 'none' }],
  },
  {
    name: 'bridge, DEL after the interface was removed',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    steps: ['ADD', { verb: 'DEL', before: ground => ipTool(ground, 'link del eth0', ground.containers[0]) }],
  },
  {
    name: 'bridge, interface name taken',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    prepare: ground => ipTool(ground, 'link add eth0 type veth peer name other', ground.containers[0]),
    steps: ['ADD'],
  },
  {
    name: 'bridge, forwarding is on already',
    plugins: [bridged(both(), { isGateway: true })],
    prepare: forwarding,
  },
];

const CHECKS: readonly TwinRow[] = [
  check('an address is missing', ground =>
    ipTool(ground, 'addr del 10.88.0.2/24 dev eth0', ground.containers[0]),
  ),
  check('a route is missing', ground => ipTool(ground, 'route del default', ground.containers[0])),
  check('the hardware address is another', ground =>
    ipTool(ground, 'link set eth0 address 02:00:00:00:00:99', ground.containers[0]),
  ),
  check('the interface is gone', ground => ipTool(ground, 'link del eth0', ground.containers[0])),
  check('the port left the bridge', async ground => {
    const [port] = await ground.lab.ip(ground.lab.host, 'link', 'show', 'master', 'br0');
    await ipTool(ground, `link set ${port?.ifname} nomaster`);
  }),
  check('the gateway address is missing', ground => ipTool(ground, 'addr del 10.88.0.1/24 dev br0')),
  check('the lease is gone', async ground => {
    await ground.lab.run(ground.lab.host, ['rm', `${ground.lab.tmp}/leases/podnet/10.88.0.2`]);
  }),
  {
    name: 'bridge, CHECK: no prevResult',
    plugins: [bridged(IPAM_V4)],
    steps: ['ADD', { verb: 'CHECK', prevResult: 'none' }, 'DEL'],
  },
  {
    name: 'bridge, CHECK in version 0.3.1',
    cniVersion: '0.3.1',
    plugins: [bridged(IPAM_V4)],
    steps: ['ADD', 'CHECK', 'DEL'],
  },
];

/** All rows of the bridge plugin except the rejected ones. */
export const BRIDGE_ROWS: readonly TwinRow[] = [
  ...VERSIONS,
  ...OPTIONS,
  ...HARDWARE_ADDRESSES,
  ...HOSTS,
  ...EXISTING,
  ...LIVES,
  ...CHECKS,
];

function check(name: string, before: NonNullable<Extract<Step, { verb: unknown }>['before']>): TwinRow {
  return {
    name: `bridge, CHECK: ${name}`,
    plugins: [bridged(IPAM_V4, { isDefaultGateway: true })],
    steps: ['ADD', { verb: 'CHECK', before }, 'DEL'],
  };
}
