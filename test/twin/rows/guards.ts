// How do firewall and sbr of both sides handle their options, behind a bridge?

import type { Row as Json } from '../../helpers/netns.ts';
import { FAILURE, LIFE, type Step, type TwinRow } from '../row.ts';
import { both, bridged, HOST_LOCAL, outside, SEEN_OUTSIDE, V4, V6 } from './parts.ts';

const MAIN = bridged(both(), { isDefaultGateway: true });
const MAIN_V4 = bridged({ ...HOST_LOCAL, ranges: [V4] }, { isDefaultGateway: true });
const MAIN_V6 = bridged({ ...HOST_LOCAL, ranges: [V6] }, { isDefaultGateway: true });

const ROUTES = [{ dst: '192.0.2.0/24', gw: '10.88.0.9' }, { dst: '198.51.100.0/24' }, { dst: '0.0.0.0/0' }];
const ROUTED = bridged({ ...HOST_LOCAL, ranges: [V4], routes: ROUTES }, { isGateway: true });

/** Both containers, to see that shared objects are kept for the second. */
const TWO: readonly Step[] = [
  'ADD',
  { verb: 'ADD', container: 2 },
  'CHECK',
  SEEN_OUTSIDE,
  'DEL',
  { verb: 'DEL', container: 2 },
];

const FIREWALL_ROWS: readonly TwinRow[] = [
  firewall('defaults', {}),
  firewall('backend left to the plugin', { backend: '' }),
  firewall('iptables', { backend: 'iptables' }),
  firewall('iptables, IPv4 only', { backend: 'iptables' }, MAIN_V4),
  firewall('iptables, IPv6 only', { backend: 'iptables' }, MAIN_V6),
  firewall('iptables, same-bridge', { backend: 'iptables', ingressPolicy: 'same-bridge' }),
  firewall('iptables, open', { backend: 'iptables', ingressPolicy: 'open' }),
  firewall('iptables, chain of the operator', { backend: 'iptables', iptablesAdminChainName: 'OURS' }),
  { ...firewall('version 0.4.0', { backend: 'iptables' }), cniVersion: '0.4.0' },
  { ...firewall('version 0.3.1', { backend: 'iptables' }), cniVersion: '0.3.1', steps: FAILURE },
  { ...firewall('unknown policy', { ingressPolicy: 'closed' }), steps: FAILURE },
  { ...firewall('policy as a number', { ingressPolicy: 1 }), steps: FAILURE },
  { name: 'firewall, first in the chain', plugins: [{ type: 'firewall' }], steps: FAILURE },
  {
    ...firewall('ADD twice', { backend: 'iptables' }),
    steps: [
      'ADD',
      {
        verb: 'ADD',
        label: 'ADD again',
        plugins: [{ type: 'firewall', backend: 'iptables' }],
        prevResult: 'last',
      },
      'DEL',
    ],
  },
  {
    ...firewall('DEL without result', { backend: 'iptables' }),
    steps: ['ADD', { verb: 'DEL', prevResult: 'none' }],
  },
  {
    ...firewall('DEL without namespace', { backend: 'iptables' }),
    steps: ['ADD', { verb: 'DEL', netns: 'gone' }],
  },
  { ...firewall('unknown backend', { backend: 'pf' }), steps: FAILURE },
];

const SBR_ROWS: readonly TwinRow[] = [
  sbr('defaults', {}),
  sbr('IPv4 only', {}, MAIN_V4),
  sbr('IPv6 only', {}, MAIN_V6),
  sbr('routes of IPAM', {}, ROUTED),
  sbr('table', { table: 5000 }),
  sbr('table of the old range', { table: 77 }, MAIN_V4),
  { ...sbr('version 0.4.0', {}, MAIN_V4), cniVersion: '0.4.0' },
  { ...sbr('version 0.3.1', {}, MAIN_V4), cniVersion: '0.3.1', steps: ['ADD', 'DEL'] },
  { name: 'sbr, first in the chain', plugins: [{ type: 'sbr' }], steps: FAILURE },
  {
    ...sbr('ADD twice', {}, MAIN_V4),
    steps: [
      'ADD',
      { verb: 'ADD', label: 'ADD again', plugins: [{ type: 'sbr' }], prevResult: 'last' },
      'DEL',
    ],
  },
  {
    ...sbr('DEL alone', {}, MAIN_V4),
    steps: ['ADD', { verb: 'DEL', label: 'DEL of one', plugins: [{ type: 'sbr' }] }, 'DEL'],
  },
];

/** All rows of plugins that filter or route packets. */
export const GUARD_ROWS: readonly TwinRow[] = [...FIREWALL_ROWS, ...SBR_ROWS];

function firewall(name: string, options: Json, main: Json = MAIN): TwinRow {
  return {
    name: `firewall, ${name}`,
    plugins: [main, { type: 'firewall', ...options }],
    prepare: outside,
    steps: TWO,
    wholePacketFilter: true,
  };
}

function sbr(name: string, options: Json, main: Json = MAIN): TwinRow {
  return { name: `sbr, ${name}`, plugins: [main, { type: 'sbr', ...options }], steps: LIFE };
}
