// How do ptp and loopback of both sides handle their options?

import { ping } from '../../helpers/traffic.ts';
import { FAILURE, LIFE_WITHOUT_CHECK, type TwinRow } from '../row.ts';
import { both, HOST_LOCAL, ipTool, outside, SEEN_OUTSIDE, V4, V6 } from './parts.ts';

const PTP = { type: 'ptp' };
const IPAM_V4 = { ...HOST_LOCAL, ranges: [V4] };
const GATEWAY = {
  probe: 'gateway',
  ask: async ({ lab, containers: [one] }: Parameters<NonNullable<TwinRow['prepare']>>[0]) => ({
    v4: await ping(lab, one, '10.88.0.1'),
  }),
};

const PTP_ROWS: readonly TwinRow[] = [
  {
    name: 'ptp, IPv4',
    plugins: [{ ...PTP, ipam: IPAM_V4 }],
    steps: ['ADD', GATEWAY, 'CHECK', 'DEL', { verb: 'DEL', label: 'DEL again' }],
  },
  { name: 'ptp, IPv6', plugins: [{ ...PTP, ipam: { ...HOST_LOCAL, ranges: [V6] } }] },
  {
    name: 'ptp, both families, routes',
    plugins: [
      {
        ...PTP,
        ipam: {
          ...both(),
          routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '192.0.2.0/24', gw: '10.88.0.1' }],
        },
      },
    ],
  },
  {
    name: 'ptp, version 0.2.0',
    cniVersion: '0.2.0',
    plugins: [{ ...PTP, ipam: both() }],
    steps: LIFE_WITHOUT_CHECK,
  },
  { name: 'ptp, version 0.4.0', cniVersion: '0.4.0', plugins: [{ ...PTP, ipam: both() }] },
  { name: 'ptp, mtu', plugins: [{ ...PTP, mtu: 1380, ipam: both() }] },
  { name: 'ptp, dns', plugins: [{ ...PTP, dns: { nameservers: ['192.0.2.53'] }, ipam: IPAM_V4 }] },
  {
    name: 'ptp, ipMasq',
    plugins: [{ ...PTP, ipMasq: true, ipam: { ...both(), routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] } }],
    prepare: outside,
    steps: ['ADD', SEEN_OUTSIDE, 'CHECK', 'DEL'],
  },
  {
    name: 'ptp, two containers',
    plugins: [{ ...PTP, ipam: IPAM_V4 }],
    steps: [
      'ADD',
      { verb: 'ADD', container: 2 },
      GATEWAY,
      'DEL',
      { verb: 'CHECK', container: 2 },
      { verb: 'DEL', container: 2 },
    ],
  },
  {
    name: 'ptp, ADD twice',
    plugins: [{ ...PTP, ipam: IPAM_V4 }],
    steps: ['ADD', { verb: 'ADD', label: 'ADD again' }, 'DEL'],
  },
  {
    name: 'ptp, interface name taken',
    plugins: [{ ...PTP, ipam: IPAM_V4 }],
    prepare: ground => ipTool(ground, 'link add eth0 type veth peer name other', ground.containers[0]),
    steps: ['ADD'],
  },
  {
    name: 'ptp, DEL without namespace',
    plugins: [{ ...PTP, ipMasq: true, ipam: IPAM_V4 }],
    steps: ['ADD', { verb: 'DEL', netns: 'none' }],
  },
  {
    name: 'ptp, DEL after the namespace',
    plugins: [{ ...PTP, ipMasq: true, ipam: IPAM_V4 }],
    steps: ['ADD', { verb: 'DEL', netns: 'gone' }],
  },
  { name: 'ptp, DEL without ADD', plugins: [{ ...PTP, ipam: IPAM_V4 }], steps: ['DEL'] },
  { name: 'ptp, no IPAM', plugins: [PTP], steps: FAILURE },
  {
    name: 'ptp, no gateway',
    plugins: [{ ...PTP, ipam: { type: 'static', addresses: [{ address: '10.88.0.5/24' }] } }],
    steps: FAILURE,
  },
  {
    name: 'ptp, host prefix',
    plugins: [
      { ...PTP, ipam: { type: 'static', addresses: [{ address: '10.88.0.5/32', gateway: '10.88.0.1' }] } },
    ],
    steps: FAILURE,
  },
  {
    name: 'ptp, CHECK: an address is missing',
    plugins: [{ ...PTP, ipam: IPAM_V4 }],
    steps: [
      'ADD',
      {
        verb: 'CHECK',
        before: ground => ipTool(ground, 'addr del 10.88.0.2/24 dev eth0', ground.containers[0]),
      },
      'DEL',
    ],
  },
];

const LOOPBACK = { type: 'loopback' };

const LOOPBACK_ROWS: readonly TwinRow[] = [
  ...['0.2.0', '0.4.0', '1.0.0', undefined].map(cniVersion => ({
    name: `loopback, version ${cniVersion ?? 'left out'}`,
    cniVersion,
    plugins: [LOOPBACK],
    steps: ['ADD' as const, 'DEL' as const, { verb: 'DEL' as const, label: 'DEL again' }],
  })),
  {
    name: 'loopback, CHECK',
    plugins: [LOOPBACK],
    steps: [
      'ADD',
      'CHECK',
      {
        verb: 'CHECK',
        label: 'CHECK when down',
        before: ground => ipTool(ground, 'link set lo down', ground.containers[0]),
      },
      'DEL',
    ],
  },
  {
    name: 'loopback, another interface name',
    plugins: [LOOPBACK],
    steps: [
      { verb: 'ADD', ifname: 'lo' },
      { verb: 'DEL', ifname: 'lo' },
    ],
  },
  {
    name: 'loopback, with another address',
    plugins: [LOOPBACK],
    prepare: ground => ipTool(ground, 'addr add 192.0.2.1/32 dev lo', ground.containers[0]),
    steps: ['ADD', 'DEL'],
  },
  {
    name: 'loopback, DEL without namespace',
    plugins: [LOOPBACK],
    steps: ['ADD', { verb: 'DEL', netns: 'none' }],
  },
  {
    name: 'loopback, DEL after the namespace',
    plugins: [LOOPBACK],
    steps: ['ADD', { verb: 'DEL', netns: 'gone' }],
  },
  {
    name: 'loopback, behind a bridge',
    plugins: [{ type: 'bridge', bridge: 'br0', ipam: IPAM_V4 }, LOOPBACK],
  },
];

/** All rows of ptp and loopback. */
export const PTP_ROWS_AND_LOOPBACK: readonly TwinRow[] = [...PTP_ROWS, ...LOOPBACK_ROWS];
