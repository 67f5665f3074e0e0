// How does portmap of both sides handle its options, behind a bridge?

import type { Row as Json } from '../../helpers/netns.ts';
import { FAILURE, type Ground, type Step, type TwinRow } from '../row.ts';
import { both, bridged, HOST_LOCAL, mapped, outside, SERVE, V4, V6 } from './parts.ts';

const MAIN = bridged(both(), { isDefaultGateway: true, hairpinMode: true });
const MAIN_V4 = bridged({ ...HOST_LOCAL, ranges: [V4] }, { isDefaultGateway: true, hairpinMode: true });
const MAIN_V6 = bridged({ ...HOST_LOCAL, ranges: [V6] }, { isDefaultGateway: true, hairpinMode: true });

const WEB = { hostPort: 8080, containerPort: 80, protocol: 'tcp' };
const DNS = { hostPort: 5353, containerPort: 53, protocol: 'udp' };
const TWO: readonly Step[] = ['ADD', { verb: 'ADD', container: 2, more: { runtimeConfig: {} } }];
/** Newer releases of the reference know the key; the tested one ignores it. */
const IPTABLES = { backend: 'iptables' };

const DEFAULT_ROWS: readonly TwinRow[] = [
  portmap('TCP and UDP', {}, [WEB, DNS], [mapped({ tcp: 8080, udp: 5353 })]),
  portmap('ipMasq of the bridge besides', {}, [WEB], [mapped({ tcp: 8080 })], { ...MAIN, ipMasq: true }),
  portmap('IPv4 only', {}, [WEB], [mapped({ tcp: 8080 })], MAIN_V4),
  portmap('snat off', { snat: false }, [WEB], [mapped({ tcp: 8080 })]),
  portmap('masqAll', { masqAll: true }, [WEB], [mapped({ tcp: 8080 })]),
  portmap('one address of the host', {}, [{ ...WEB, hostIP: '10.201.0.1' }], [mapped({ tcp: 8080 })]),
  portmap('127.0.0.1', {}, [{ ...WEB, hostIP: '127.0.0.1' }], [mapped({ tcp: 8080 })]),
  portmap('0.0.0.0', {}, [{ ...WEB, hostIP: '0.0.0.0' }], [mapped({ tcp: 8080 })]),
  portmap('::', {}, [{ ...WEB, hostIP: '::' }], [mapped({ tcp: 8080 })]),
  portmap('an IPv6 address of the host', {}, [{ ...WEB, hostIP: 'fd00:201::1' }], [mapped({ tcp: 8080 })]),
  portmap('two ports to one', {}, [WEB, { ...WEB, hostPort: 8081 }], [mapped({ tcp: 8081 })]),
  portmap('protocol in capitals', {}, [{ ...WEB, protocol: 'TCP' }], [mapped({ tcp: 8080 })]),
  portmap('no ports', {}, [], []),
  { name: 'portmap, no capability', plugins: [MAIN, { type: 'portmap' }] },
  {
    name: 'portmap, host port 0',
    plugins: [MAIN, { type: 'portmap' }],
    more: ports([{ ...WEB, hostPort: 0 }]),
    steps: FAILURE,
  },
  {
    name: 'portmap, no container port',
    plugins: [MAIN, { type: 'portmap' }],
    more: ports([{ hostPort: 8080, protocol: 'tcp' }]),
    steps: FAILURE,
  },
  {
    name: 'portmap, host port beyond 65535',
    plugins: [MAIN, { type: 'portmap' }],
    more: ports([{ ...WEB, hostPort: 70_000 }]),
    steps: FAILURE,
  },
  {
    name: 'portmap, unknown protocol',
    plugins: [MAIN, { type: 'portmap' }],
    more: ports([{ ...WEB, protocol: 'dance' }]),
    steps: FAILURE,
  },
  {
    name: 'portmap, mark bit out of range',
    plugins: [MAIN, { type: 'portmap', markMasqBit: 32 }],
    more: ports([WEB]),
    steps: FAILURE,
  },
  { name: 'portmap, first in the chain', plugins: [{ type: 'portmap' }], more: ports([WEB]), steps: FAILURE },
  {
    name: 'portmap, DEL without the ports',
    plugins: [MAIN, { type: 'portmap' }],
    more: ports([WEB]),
    prepare: outside,
    steps: [
      'ADD',
      { verb: 'DEL', plugins: [{ type: 'portmap' }], more: { runtimeConfig: {} } },
      SERVE,
      mapped({ tcp: 8080 }, 'still mapped'),
      'DEL',
    ],
  },
  {
    name: 'portmap, DEL after the namespace',
    plugins: [MAIN, { type: 'portmap' }],
    more: ports([WEB]),
    steps: ['ADD', { verb: 'DEL', netns: 'gone' }],
  },
  {
    name: 'portmap, two containers, one port',
    plugins: [MAIN, { type: 'portmap' }],
    more: ports([WEB]),
    steps: ['ADD', { verb: 'ADD', container: 2 }, { verb: 'DEL', container: 2 }, 'DEL'],
  },
];

const MANY = Array.from({ length: 17 }, (_, i) => ({ ...WEB, hostPort: 8080 + i }));
const SEEN = [mapped({ tcp: 8080 })];

/** Both sides write iptables rules, all of which are compared. */
const IPTABLES_ROWS: readonly TwinRow[] = [
  iptables('TCP and UDP', {}, [WEB, DNS], [mapped({ tcp: 8080, udp: 5353 })]),
  iptables('IPv4 only', {}, [WEB], SEEN, MAIN_V4),
  iptables('IPv6 only', {}, [WEB], SEEN, MAIN_V6),
  iptables('ipMasq of the bridge besides', {}, [WEB], SEEN, {
    ...MAIN,
    ipMasq: true,
    ipMasqBackend: 'iptables',
  }),
  iptables('snat off', { snat: false }, [WEB], SEEN),
  iptables('another mark', { markMasqBit: 5 }, [WEB], SEEN),
  iptables('the usual mark, said so', { markMasqBit: 13 }, [WEB], SEEN),
  iptables('SCTP', {}, [{ ...WEB, protocol: 'sctp' }], []),
  iptables('more ports than a rule takes', {}, MANY, SEEN),
  iptables(
    'one port for each protocol',
    {},
    [WEB, { ...WEB, protocol: 'udp', containerPort: 53 }],
    [mapped({ tcp: 8080, udp: 8080 })],
  ),
  iptables('one address of the host', {}, [{ ...WEB, hostIP: '10.201.0.1' }], SEEN, MAIN_V4),
  iptables('127.0.0.1', {}, [{ ...WEB, hostIP: '127.0.0.1' }], SEEN, MAIN_V4),
  iptables('0.0.0.0', {}, [{ ...WEB, hostIP: '0.0.0.0' }], SEEN, MAIN_V4),
  iptables('an empty address', {}, [{ ...WEB, hostIP: '' }], SEEN),
  iptables('::', {}, [{ ...WEB, hostIP: '::' }], SEEN, MAIN_V6),
  iptables('an IPv6 address of the host', {}, [{ ...WEB, hostIP: 'fd00:201::1' }], SEEN, MAIN_V6),
  iptables('conditions, which fit', { conditionsV4: ['-s', '10.201.0.0/24'] }, [WEB], SEEN),
  iptables('conditions, which do not', { conditionsV4: ['!', '-s', '10.201.0.0/24'] }, [WEB], SEEN),
  iptables('conditions for IPv6', { conditionsV6: ['-i', 'outside0'] }, [WEB], SEEN),
  iptables(
    'conditions with a match',
    { conditionsV4: ['-m', 'mark', '!', '--mark', '0x7/0xf'] },
    [WEB],
    SEEN,
  ),
  {
    ...iptables('a chain of others marks', { externalSetMarkChain: 'KUBE-MARK-MASQ' }, [WEB], SEEN),
    prepare: withMarkChain,
  },
  {
    ...iptables('a chain of others is missing', { externalSetMarkChain: 'NOBODYS' }, [WEB], []),
    steps: FAILURE,
  },
  {
    ...iptables('a chain of others, and a mark', { externalSetMarkChain: 'X', markMasqBit: 13 }, [WEB], []),
    steps: FAILURE,
  },
  { ...iptables('a match that is none', { conditionsV4: ['--dance'] }, [WEB], []), steps: FAILURE },
  { ...iptables('mark bit out of range', { markMasqBit: 32 }, [WEB], []), steps: FAILURE },
  { ...iptables('version 0.3.1', {}, [WEB], []), cniVersion: '0.3.1', steps: ['ADD', 'DEL'] },
  { ...iptables('version 0.4.0', {}, [WEB], []), cniVersion: '0.4.0' },
  {
    ...iptables('ADD twice', {}, [WEB], []),
    steps: [
      'ADD',
      { verb: 'ADD', label: 'ADD again', plugins: [{ type: 'portmap', ...IPTABLES }], prevResult: 'last' },
      'DEL',
    ],
  },
  {
    ...iptables('DEL after the namespace', {}, [WEB], []),
    steps: ['ADD', { verb: 'DEL', netns: 'gone' }],
  },
  {
    ...iptables('DEL without result', {}, [WEB], []),
    steps: ['ADD', { verb: 'DEL', prevResult: 'none', plugins: [{ type: 'portmap', ...IPTABLES }] }, 'DEL'],
  },
  {
    ...iptables('two containers', {}, [WEB], []),
    steps: [
      'ADD',
      { verb: 'ADD', container: 2, more: ports([{ ...WEB, hostPort: 8081 }]) },
      'DEL',
      { verb: 'DEL', container: 2 },
    ],
  },
  {
    ...iptables('rules wiped before ADD', {}, [WEB], []),
    steps: [
      'ADD',
      {
        verb: 'ADD',
        container: 2,
        more: ports([{ ...WEB, hostPort: 8081 }]),
        before: async ({ lab }) =>
          void (await lab.run(lab.host, ['iptables', '-t', 'nat', '-F', 'PREROUTING'])),
      },
    ],
  },
];

/** All rows of port mapping. */
export const PORT_ROWS: readonly TwinRow[] = [...DEFAULT_ROWS, ...IPTABLES_ROWS];

function ports(portMappings: readonly Json[]): Json {
  return { runtimeConfig: { portMappings } };
}

function portmap(
  name: string,
  options: Json,
  mappings: readonly Json[],
  probes: readonly Step[],
  main: Json = MAIN,
): TwinRow {
  return {
    name: `portmap, ${name}`,
    plugins: [main, { type: 'portmap', ...options }],
    more: ports(mappings),
    prepare: outside,
    steps: [...TWO, SERVE, ...probes, 'CHECK', 'DEL', { verb: 'DEL', label: 'DEL again' }],
  };
}

function iptables(
  name: string,
  options: Json,
  mappings: readonly Json[],
  probes: readonly Step[],
  main: Json = MAIN,
): TwinRow {
  return {
    ...portmap(`iptables, ${name}`, { ...IPTABLES, ...options }, mappings, probes, main),
    wholePacketFilter: true,
  };
}

/** A third party marks and masquerades packets. */
async function withMarkChain(ground: Ground): Promise<void> {
  await outside(ground);
  for (const tool of ['iptables-restore', 'ip6tables-restore']) {
    const lines = [
      '*nat',
      ':KUBE-MARK-MASQ - [0:0]',
      '-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000',
      '-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE',
      'COMMIT',
      '',
    ];
    await ground.lab.run(ground.lab.host, [tool], { stdin: lines.join('\n') });
  }
}
