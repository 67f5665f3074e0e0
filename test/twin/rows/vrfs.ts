// How do VRFs of both sides take an interface over? Only for kernels that have them.

import { FAILURE, type Ground, type TwinRow } from '../row.ts';
import { BRIDGE, both, bridged, HOST_LOCAL, ipTool, V4 } from './parts.ts';

const IPAM_V4 = { ...HOST_LOCAL, ranges: [V4] };
const CHAIN = [bridged(IPAM_V4)];
/** The reference's choice depends on which tables others have. */
const VRF = { type: 'vrf', vrfname: 'blue', table: 500 };

const inOne =
  (...commands: readonly string[]) =>
  (ground: Ground): Promise<void> =>
    ipTool(ground, ...commands, ground.containers[0]);

/** All rows of vrf, behind a bridge. */
export const VRF_ROWS: readonly TwinRow[] = [
  { name: 'vrf, IPv4', plugins: [...CHAIN, VRF] },
  {
    name: 'vrf, both families, default routes',
    plugins: [{ ...BRIDGE, isDefaultGateway: true, ipam: both() }, VRF],
  },
  { name: 'vrf, version 0.4.0', cniVersion: '0.4.0', plugins: [...CHAIN, VRF] },
  {
    name: 'vrf, the VRF exists',
    plugins: [...CHAIN, VRF],
    prepare: inOne('link add blue type vrf table 500', 'link set blue up'),
  },
  {
    name: 'vrf, the VRF has another table',
    plugins: [...CHAIN, VRF],
    prepare: inOne('link add blue type vrf table 501', 'link set blue up'),
    steps: FAILURE,
  },
  { name: 'vrf, no name', plugins: [...CHAIN, { type: 'vrf' }], steps: FAILURE },
  {
    name: 'vrf, two interfaces',
    plugins: [...CHAIN, VRF],
    steps: [
      'ADD',
      { verb: 'ADD', ifname: 'net1', label: 'ADD net1' },
      { verb: 'DEL', ifname: 'net1', label: 'DEL net1' },
      'DEL',
    ],
  },
  {
    name: 'vrf, CHECK: the interface has left it',
    plugins: [...CHAIN, VRF],
    steps: ['ADD', { verb: 'CHECK', before: inOne('link set eth0 nomaster') }, 'DEL'],
  },
];
