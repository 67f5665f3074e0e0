// How do bridges of both sides separate VLANs? Only for kernels that support it.

import { ping } from '../../helpers/traffic.ts';
import { LIFE, type Probe, type Step, type TwinRow } from '../row.ts';
import {
  BRIDGE,
  both,
  bridged,
  forwarding,
  HOST_LOCAL,
  ipTool,
  outside,
  SEEN_OUTSIDE,
  V4,
  V6,
} from './parts.ts';

const IPAM_V4 = { ...HOST_LOCAL, ranges: [V4] };
const IPAM_V6 = { ...HOST_LOCAL, ranges: [V6] };

/** Container 2 is added and deleted, in a VLAN of its own or in that of container 1. */
function neighbour(vlan: number | undefined): Step[] {
  const plugins = [bridged(IPAM_V4, vlan === undefined ? {} : { vlan })];
  return [
    { verb: 'ADD', container: 2, label: 'ADD 2', plugins },
    REACHES,
    { verb: 'DEL', container: 2, label: 'DEL 2', plugins },
  ];
}

const REACHES: Probe = {
  probe: 'reaches its neighbour',
  ask: ({ lab, containers }) => ping(lab, containers[0], '10.88.0.3'),
};

const GATEWAY: Probe = {
  probe: 'reaches its gateway',
  ask: ({ lab, containers }) => ping(lab, containers[0], '10.88.0.1'),
};

/** A foreign bridge that already filters VLANs. */
function filtering(...more: string[]) {
  return (ground: Parameters<typeof ipTool>[0]): Promise<void> =>
    ipTool(ground, 'link add br0 type bridge vlan_filtering 1', ...more);
}

/** Bridges with VLANs. */
export const VLAN_ROWS: readonly TwinRow[] = [
  { name: 'vlan, layer 2', plugins: [{ ...BRIDGE, vlan: 100 }], steps: ['ADD', 'DEL'] },
  { name: 'vlan, IPv4, no gateway', plugins: [bridged(IPAM_V4, { vlan: 100 })] },
  { name: 'vlan, IPv6, no gateway', plugins: [bridged(IPAM_V6, { vlan: 100 })] },
  {
    name: 'vlan, IPv4, isGateway',
    plugins: [bridged(IPAM_V4, { vlan: 100, isGateway: true })],
    steps: ['ADD', GATEWAY, 'CHECK', 'DEL', { verb: 'DEL', label: 'DEL again' }],
  },
  {
    name: 'vlan, IPv6, isDefaultGateway',
    plugins: [bridged(IPAM_V6, { vlan: 100, isDefaultGateway: true })],
  },
  {
    name: 'vlan, both families, isDefaultGateway',
    plugins: [bridged(both(), { vlan: 100, isDefaultGateway: true })],
  },
  { name: 'vlan, lowest', plugins: [bridged(IPAM_V4, { vlan: 1, isGateway: true })] },
  { name: 'vlan, highest', plugins: [bridged(IPAM_V4, { vlan: 4094, isGateway: true })] },
  { name: 'vlan, none', plugins: [bridged(IPAM_V4, { vlan: 0, isGateway: true })] },
  { name: 'vlan, mtu', plugins: [bridged(IPAM_V4, { vlan: 100, isGateway: true, mtu: 1400 })] },
  {
    name: 'vlan, hairpinMode',
    plugins: [bridged(IPAM_V4, { vlan: 100, isGateway: true, hairpinMode: true })],
  },
  {
    name: 'vlan, promiscMode',
    plugins: [bridged(IPAM_V4, { vlan: 100, isGateway: true, promiscMode: true })],
  },
  {
    name: 'vlan, ipMasq',
    plugins: [bridged(both(), { vlan: 100, isDefaultGateway: true, ipMasq: true })],
    prepare: outside,
    steps: ['ADD', SEEN_OUTSIDE, 'DEL'],
  },
  {
    name: 'vlan, a host that forwards',
    plugins: [bridged(both(), { vlan: 100, isGateway: true })],
    prepare: forwarding,
  },
  {
    name: 'vlan, neighbour in the same one',
    plugins: [bridged(IPAM_V4, { vlan: 100 })],
    steps: ['ADD', ...neighbour(100), 'DEL'],
  },
  {
    name: 'vlan, neighbour in another one',
    plugins: [bridged(IPAM_V4, { vlan: 100 })],
    steps: ['ADD', ...neighbour(200), 'DEL'],
  },
  {
    name: 'vlan, neighbour in none',
    plugins: [bridged(IPAM_V4, { vlan: 100 })],
    steps: ['ADD', ...neighbour(undefined), 'DEL'],
  },
  {
    name: 'vlan, bridge exists',
    plugins: [bridged(IPAM_V4, { vlan: 100, isGateway: true })],
    prepare: filtering('link set br0 up'),
  },
  {
    name: 'vlan, bridge exists without a default VLAN',
    plugins: [bridged(IPAM_V4, { vlan: 100, isGateway: true })],
    prepare: ground => ipTool(ground, 'link add br0 type bridge vlan_filtering 1 vlan_default_pvid 0'),
    steps: LIFE,
  },
  {
    name: 'vlan, no VLAN on a bridge that keeps them apart',
    plugins: [bridged(IPAM_V4, { isGateway: true })],
    prepare: filtering(),
  },
];
