// How do macvlans of both sides handle their options? Debian's reference (1.1.1) has neither `bcqueuelen` nor `linkInContainer`.

import { ping } from '../../helpers/traffic.ts';
import { FAILURE, LIFE_WITHOUT_CHECK, type Probe, type TwinRow } from '../row.ts';
import { both, HOST_LOCAL, ipTool, outside, V4 } from './parts.ts';

const MACVLAN = { type: 'macvlan', master: 'outside0' };
const IPAM_V4 = { ...HOST_LOCAL, ranges: [V4] };
/** Otherwise random with the reference. */
const MAC = { mac: 'c2:11:22:33:44:55' };

const NEIGHBOUR: Probe = {
  probe: 'neighbour',
  ask: async ({ lab, containers: [one] }) => ({ v4: await ping(lab, one, '10.88.0.3') }),
};

/** A row whose host has a master with a network behind it. */
const row = (name: string, more: Partial<TwinRow>): TwinRow => ({
  name: `macvlan, ${name}`,
  plugins: [{ ...MACVLAN, ...MAC, ipam: IPAM_V4 }],
  prepare: outside,
  ...more,
});

/** All rows of macvlan. */
export const MACVLAN_ROWS: readonly TwinRow[] = [
  row('IPv4', {}),
  row('both families, routes', {
    plugins: [
      {
        ...MACVLAN,
        ...MAC,
        ipam: {
          ...both(),
          routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '192.0.2.0/24', gw: '10.88.0.1' }],
        },
      },
    ],
  }),
  row('version 0.2.0', { cniVersion: '0.2.0', steps: LIFE_WITHOUT_CHECK }),
  row('version 0.4.0', { cniVersion: '0.4.0' }),
  row('master of the default route', { plugins: [{ type: 'macvlan', ...MAC, ipam: IPAM_V4 }] }),
  ...['private', 'vepa', 'passthru'].map(mode =>
    row(`mode ${mode}`, { plugins: [{ ...MACVLAN, ...MAC, mode, ipam: IPAM_V4 }] }),
  ),
  row('mtu', { plugins: [{ ...MACVLAN, ...MAC, mtu: 1380, ipam: IPAM_V4 }] }),
  row('layer 2 only', { plugins: [{ ...MACVLAN, ...MAC }], steps: ['ADD', 'DEL'] }),
  row('MAC of CNI_ARGS', {
    plugins: [{ ...MACVLAN, ipam: IPAM_V4 }],
    args: 'IgnoreUnknown=1;MAC=c2:11:22:33:44:66',
  }),
  row('capability mac', {
    plugins: [{ ...MACVLAN, ipam: IPAM_V4 }],
    more: { runtimeConfig: { mac: 'c2:11:22:33:44:77' } },
  }),
  row('dns', { plugins: [{ ...MACVLAN, ...MAC, dns: { nameservers: ['192.0.2.53'] }, ipam: IPAM_V4 }] }),
  row('two containers', {
    plugins: [{ ...MACVLAN, ipam: IPAM_V4 }],
    steps: [
      { verb: 'ADD', args: 'IgnoreUnknown=1;MAC=c2:11:22:33:44:66' },
      { verb: 'ADD', container: 2, args: 'IgnoreUnknown=1;MAC=c2:11:22:33:44:77' },
      NEIGHBOUR,
      { verb: 'DEL', container: 2 },
      'DEL',
    ],
  }),
  row('interface name taken', {
    prepare: async ground => {
      await outside(ground);
      await ipTool(ground, 'link add eth0 type veth peer name other', ground.containers[0]);
    },
    steps: ['ADD'],
  }),
  row('the host has the name', {
    prepare: async ground => {
      await outside(ground);
      await ipTool(ground, 'link add eth0 type veth peer name other');
    },
  }),
  row('mtu too large', { plugins: [{ ...MACVLAN, mtu: 9000, ipam: IPAM_V4 }], steps: FAILURE }),
  row('unknown mode', { plugins: [{ ...MACVLAN, mode: 'none', ipam: IPAM_V4 }], steps: FAILURE }),
  row('no such master', { plugins: [{ ...MACVLAN, master: 'eth9', ipam: IPAM_V4 }], steps: FAILURE }),
  row('no default route', {
    plugins: [{ type: 'macvlan', ipam: IPAM_V4 }],
    prepare: async () => {},
    steps: FAILURE,
  }),
  row('IPAM fails', { plugins: [{ ...MACVLAN, ...MAC, ipam: { type: 'host-local' } }], steps: FAILURE }),
  row('DEL without master', {
    steps: ['ADD', { verb: 'DEL', before: ground => ipTool(ground, 'link del outside0') }],
  }),
  row('DEL without namespace', { steps: ['ADD', { verb: 'DEL', netns: 'none' }] }),
  row('DEL after the namespace', { steps: ['ADD', { verb: 'DEL', netns: 'gone' }] }),
  row('CHECK: a route is missing', {
    plugins: [{ ...MACVLAN, ...MAC, ipam: { ...IPAM_V4, routes: [{ dst: '192.0.2.0/24' }] } }],
    steps: [
      'ADD',
      {
        verb: 'CHECK',
        before: ground => ipTool(ground, 'route del 192.0.2.0/24', ground.containers[0]),
      },
      'DEL',
    ],
  }),
];
