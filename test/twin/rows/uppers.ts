// How do VLANs and ipvlans of both sides handle their options? Only for kernels that have these kinds of devices.
//
// Debian's reference (1.1.1) has no `linkInContainer`.

import { ping } from '../../helpers/traffic.ts';
import { FAILURE, type Ground, LIFE_WITHOUT_CHECK, type Probe, type TwinRow } from '../row.ts';
import { both, HOST_LOCAL, ipTool, V4 } from './parts.ts';

const VLAN = { type: 'vlan', master: 'outside0', vlanId: 5 };
const IPVLAN = { type: 'ipvlan', master: 'outside0' };
const IPAM_V4 = { ...HOST_LOCAL, ranges: [V4] };
const ROUTES = [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '192.0.2.0/24', gw: '10.88.0.1' }];

const NEIGHBOUR: Probe = {
  probe: 'neighbour',
  ask: async ({ lab, containers: [one] }) => ({ v4: await ping(lab, one, '10.88.0.3') }),
};

/** The master, and a network behind it. The kernel forms the IPv6 addresses of an ipvlan from its master's hardware address. */
async function outside(ground: Ground): Promise<void> {
  await ground.lab.outside();
  await ipTool(ground, 'link set outside0 address 02:00:00:00:00:0a');
}

const withoutMaster = (ground: Ground): Promise<void> => ipTool(ground, 'link del outside0');

/** Rows that both kinds have, with their own first entry of the chain. */
function common(kind: string, main: object): readonly TwinRow[] {
  const row = (name: string, more: Partial<TwinRow>): TwinRow => ({
    name: `${kind}, ${name}`,
    plugins: [{ ...main, ipam: IPAM_V4 }],
    prepare: outside,
    ...more,
  });
  return [
    row('IPv4', {}),
    row('both families, routes', { plugins: [{ ...main, ipam: { ...both(), routes: ROUTES } }] }),
    row('version 0.2.0', { cniVersion: '0.2.0', steps: LIFE_WITHOUT_CHECK }),
    row('version 0.4.0', { cniVersion: '0.4.0' }),
    row('mtu', { plugins: [{ ...main, mtu: 1380, ipam: IPAM_V4 }] }),
    row('dns', { plugins: [{ ...main, dns: { nameservers: ['192.0.2.53'] }, ipam: IPAM_V4 }] }),
    row('interface name taken', {
      prepare: async ground => {
        await outside(ground);
        await ipTool(ground, 'link add eth0 type veth peer name other', ground.containers[0]);
      },
      steps: ['ADD'],
    }),
    row('mtu too large', { plugins: [{ ...main, mtu: 9000, ipam: IPAM_V4 }], steps: FAILURE }),
    row('no such master', { plugins: [{ ...main, master: 'eth9', ipam: IPAM_V4 }], steps: FAILURE }),
    row('IPAM fails', { plugins: [{ ...main, ipam: { type: 'host-local' } }], steps: FAILURE }),
    row('DEL without master', { steps: ['ADD', { verb: 'DEL', before: withoutMaster }] }),
    row('DEL without namespace', { steps: ['ADD', { verb: 'DEL', netns: 'none' }] }),
    row('DEL after the namespace', { steps: ['ADD', { verb: 'DEL', netns: 'gone' }] }),
    row('CHECK: an address is missing', {
      steps: [
        'ADD',
        {
          verb: 'CHECK',
          before: ground => ipTool(ground, 'addr flush dev eth0 scope global', ground.containers[0]),
        },
        'DEL',
      ],
    }),
  ];
}

/** All rows of vlan and ipvlan. */
export const UPPER_ROWS: readonly TwinRow[] = [
  ...common('vlan', VLAN),
  {
    name: 'vlan, no master',
    plugins: [{ type: 'vlan', vlanId: 5, ipam: IPAM_V4 }],
    prepare: outside,
    steps: FAILURE,
  },
  {
    name: 'vlan, id out of range',
    plugins: [{ ...VLAN, vlanId: 4095, ipam: IPAM_V4 }],
    prepare: outside,
    steps: FAILURE,
  },
  {
    name: 'vlan, one VLAN for two containers',
    plugins: [{ ...VLAN, ipam: IPAM_V4 }],
    prepare: outside,
    steps: ['ADD', { verb: 'ADD', container: 2, label: 'ADD 2' }, 'CHECK', 'DEL'],
  },
  ...common('ipvlan', IPVLAN),
  ...['l3', 'l3s'].map(mode => ({
    name: `ipvlan, mode ${mode}`,
    plugins: [{ ...IPVLAN, mode, ipam: { ...IPAM_V4, routes: [{ dst: '192.0.2.0/24' }] } }],
    prepare: outside,
  })),
  {
    name: 'ipvlan, master of the default route',
    plugins: [{ type: 'ipvlan', ipam: IPAM_V4 }],
    prepare: outside,
  },
  {
    name: 'ipvlan, unknown mode',
    plugins: [{ ...IPVLAN, mode: 'none', ipam: IPAM_V4 }],
    prepare: outside,
    steps: FAILURE,
  },
  {
    name: 'ipvlan, two containers',
    plugins: [{ ...IPVLAN, ipam: IPAM_V4 }],
    prepare: outside,
    steps: [
      'ADD',
      { verb: 'ADD', container: 2, label: 'ADD 2' },
      NEIGHBOUR,
      { verb: 'DEL', container: 2, label: 'DEL 2' },
      'DEL',
    ],
  },
];
