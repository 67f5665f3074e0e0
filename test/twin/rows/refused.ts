// How do both sides handle invalid input?

import { type Call, FAILURE, type TwinRow } from '../row.ts';
import { BRIDGE, bridged, HOST_LOCAL, V4 } from './parts.ts';

const IPAM = { ...HOST_LOCAL, ranges: [V4] };

/** Invalid configurations of the bridge plugin; only the failure and what it leaves are compared. */
const OPTIONS: readonly TwinRow[] = [
  refused('hairpinMode with promiscMode', { hairpinMode: true, promiscMode: true }),
  refused('mtu as text', { mtu: '1500' }),
  refused('mtu with a fraction', { mtu: 1500.5 }),
  refused('mtu too large', { mtu: 70_000 }),
  refused('isGateway as text', { isGateway: 'yes' }),
  refused('vlan out of range', { vlan: 5000 }),
  refused('vlan negative', { vlan: -100 }),
  refused('empty bridge name', { bridge: '' }),
  refused('bridge name too long', { bridge: 'a-name-with-17-by' }),
  refused('bridge name with a slash', { bridge: 'br/0' }),
  refused('ipam as text', { ipam: 'host-local' }),
  refused('IPAM that is not there', { ipam: { type: 'not-there' } }),
  refused('IPAM with a path', { ipam: { type: '../host-local' } }),
  refused('IPAM with a bad range', { ipam: { ...HOST_LOCAL, subnet: '10.88.0.5/24' } }),
  refused('dns as text', { dns: 'none' }),
  refused('route without destination', { ipam: { ...IPAM, routes: [{ gw: '10.88.0.1' }] } }),
  refused('route that the kernel refuses', {
    ipam: { ...IPAM, routes: [{ dst: '192.0.2.0/24', gw: '203.0.113.1' }] },
  }),
  refused('the same route twice', {
    ipam: { ...IPAM, routes: [{ dst: '192.0.2.0/24' }, { dst: '192.0.2.0/24' }] },
  }),
];

const REQUESTS: readonly TwinRow[] = [
  request('stdin is no JSON', { stdin: '{"cniVersion": "1.0.0",' }),
  request('stdin is empty', { stdin: '' }),
  request('stdin is a list', { stdin: '[]' }),
  request('no name', { more: { name: undefined } }),
  request('a name that is none', { more: { name: 'a/b' } }),
  request('an unknown version', { more: { cniVersion: '9.9.9' } }),
  request('a version that is none', { more: { cniVersion: 'new' } }),
  request('a container id that is none', { env: { CNI_CONTAINERID: '../x' } }),
  request('no container id', { env: { CNI_CONTAINERID: '' } }),
  request('no interface name', { env: { CNI_IFNAME: '' } }),
  request('an interface name that is none', { ifname: 'a:b' }),
  request('an interface name too long', { ifname: 'sixteen-letters-' }),
  request('no namespace', { netns: 'none' }),
  request('a namespace that is none', { netns: 'no namespace' }),
  request('the own namespace', { netns: 'own' }),
  request('no CNI_PATH', { env: { CNI_PATH: '' } }),
  request('an unknown verb', { env: { CNI_COMMAND: 'JUMP' } }),
  request('CNI_ARGS without "="', { args: 'IgnoreUnknown' }),
  request('CNI_ARGS with an unknown key', { args: 'FOO=bar' }),
  request('CNI_ARGS with a key of IPAM only', { args: 'IP=10.88.0.9' }),
  request('CNI_ARGS with a bad MAC', { args: 'MAC=nonsense' }),
  request('CNI_ARGS with a bad IgnoreUnknown', { args: 'IgnoreUnknown=maybe;A=b' }),
];

/** All rows that are rejected by at least one side. */
export const REFUSED_ROWS: readonly TwinRow[] = [...OPTIONS, ...REQUESTS];

function refused(name: string, options: object): TwinRow {
  return { name: `refused: ${name}`, plugins: [{ ...bridged(IPAM), ...options }], steps: FAILURE };
}

function request(name: string, call: Omit<Call, 'verb'>): TwinRow {
  return {
    name: `refused: ${name}`,
    plugins: [{ ...BRIDGE, ipam: IPAM }],
    steps: [{ verb: 'ADD', ...call }, 'DEL'],
  };
}
