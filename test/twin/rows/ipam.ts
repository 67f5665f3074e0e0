// How do host-local and static of both sides handle their options, called as bridge calls them?

import fs from 'node:fs';
import type { Row as Json } from '../../helpers/netns.ts';
import { FAILURE, type Ground, type TwinRow } from '../row.ts';
import { bridged, resolvConf, V4, V6 } from './parts.ts';

const SMALL = [{ subnet: '10.88.0.0/29' }];

const HOST_LOCAL_ROWS: readonly TwinRow[] = [
  { name: 'host-local, single range', plugins: [local({ subnet: '10.88.0.0/24' })] },
  {
    name: 'host-local, single range with bounds and gateway',
    plugins: [
      local({
        subnet: '10.88.0.0/24',
        rangeStart: '10.88.0.10',
        rangeEnd: '10.88.0.20',
        gateway: '10.88.0.12',
      }),
    ],
  },
  {
    name: 'host-local, single range before range sets',
    plugins: [local({ subnet: '10.87.0.0/24', ranges: [V4, V6] })],
  },
  {
    name: 'host-local, a set of two ranges',
    plugins: [
      local({
        ranges: [[{ subnet: '10.88.0.0/24', rangeStart: '10.88.0.254' }, { subnet: '10.89.0.0/24' }]],
      }),
    ],
    steps: ['ADD', { verb: 'ADD', container: 2 }, 'CHECK', 'DEL', { verb: 'DEL', container: 2 }],
  },
  {
    name: 'host-local, bounds are network and broadcast',
    plugins: [
      local({ ranges: [[{ subnet: '10.88.0.0/30', rangeStart: '10.88.0.0', rangeEnd: '10.88.0.3' }]] }),
    ],
    steps: ['ADD', 'DEL'],
  },
  {
    name: 'host-local, routes and resolvConf',
    plugins: [
      local({
        ranges: [V4, V6],
        resolvConf: '{tmp}/resolv.conf',
        routes: [
          { dst: '0.0.0.0/0' },
          { dst: '192.0.2.7/24', gw: '10.88.0.3' },
          { dst: '::/0', gw: 'fd88::3' },
        ],
      }),
    ],
    prepare: resolvConf,
  },
  {
    name: 'host-local, resolvConf missing',
    plugins: [local({ ranges: [V4], resolvConf: '{tmp}/missing' })],
    steps: FAILURE,
  },
  {
    name: 'host-local, version 0.2.0',
    cniVersion: '0.2.0',
    plugins: [local({ ranges: [V4, V6], routes: [{ dst: '0.0.0.0/0' }] })],
    steps: ['ADD', 'DEL'],
  },
  {
    name: 'host-local, two IPv4 sets, version 0.2.0',
    cniVersion: '0.2.0',
    plugins: [local({ ranges: [V4, [{ subnet: '10.89.0.0/24' }]] })],
    steps: FAILURE,
  },
  {
    name: 'host-local, version 0.4.0',
    cniVersion: '0.4.0',
    plugins: [local({ ranges: [V4, V6], routes: [{ dst: '0.0.0.0/0' }] })],
  },
  {
    name: 'host-local, ADD twice',
    plugins: [local({ ranges: [V4] })],
    steps: ['ADD', { verb: 'ADD', label: 'ADD again' }, 'DEL'],
  },
  {
    name: 'host-local, round robin',
    plugins: [local({ ranges: [SMALL] })],
    steps: ['ADD', 'DEL', 'ADD', 'DEL', 'ADD', { verb: 'ADD', container: 2 }],
  },
  {
    name: 'host-local, wraps around',
    plugins: [local({ ranges: [SMALL] })],
    prepare: leases({ 'last_reserved_ip.0': '10.88.0.6', '10.88.0.2': 'x\r\neth0' }),
  },
  {
    name: 'host-local, last reserved address out of range',
    plugins: [local({ ranges: [SMALL] })],
    prepare: leases({ 'last_reserved_ip.0': '192.0.2.1' }),
  },
  {
    name: 'host-local, last reserved address that is none',
    plugins: [local({ ranges: [SMALL] })],
    prepare: leases({ 'last_reserved_ip.0': '10.88.0.3\n' }),
  },
  {
    name: 'host-local, exhausted',
    plugins: [local({ ranges: [[{ subnet: '10.88.0.0/30' }]] })],
    prepare: leases({ '10.88.0.2': 'x\r\neth0' }),
    steps: FAILURE,
  },
  {
    name: 'host-local, second set exhausted',
    plugins: [local({ ranges: [V6, [{ subnet: '10.88.0.0/30' }]] })],
    prepare: leases({ '10.88.0.2': 'x\r\neth0' }),
    steps: FAILURE,
  },
  {
    name: 'host-local, lease of an old version',
    plugins: [local({ ranges: [V4] })],
    prepare: leases({ '10.88.0.2': 'twin-1', '10.88.0.3': ' twin-2 \n' }),
    steps: ['CHECK', 'DEL', { verb: 'DEL', container: 2 }],
  },
  {
    name: 'host-local, lease with a line feed only',
    plugins: [local({ ranges: [V4] })],
    prepare: leases({ '10.88.0.2': 'twin-1\neth0' }),
    steps: ['DEL'],
  },
  {
    name: 'host-local, DEL releases what lies out of range',
    plugins: [local({ ranges: [V4] })],
    prepare: leases({ '192.0.2.9': 'twin-1\r\neth0' }),
    steps: ['DEL'],
  },
  {
    name: 'host-local, DEL with a range that is none',
    plugins: [local({ ranges: [V4] })],
    steps: ['ADD', { verb: 'DEL', plugins: [local({ ranges: [[{ subnet: '10.88.0.1/24' }]] })] }],
  },
  { name: 'host-local, CHECK without lease', plugins: [local({ ranges: [V4] })], steps: ['CHECK'] },
  { name: 'host-local, address from CNI_ARGS', plugins: [local({ ranges: [V4] })], args: 'IP=10.88.0.77' },
  {
    name: 'host-local, address with prefix from CNI_ARGS',
    plugins: [local({ ranges: [V4] })],
    args: 'IP=10.88.0.77/16',
  },
  {
    name: 'host-local, addresses from args.cni',
    plugins: [local({ ranges: [V4, V6] })],
    more: { args: { cni: { ips: ['10.88.0.78', 'fd88::78/64'] } } },
  },
  {
    name: 'host-local, addresses from runtimeConfig',
    plugins: [local({ ranges: [V4, V6] })],
    more: { runtimeConfig: { ips: ['fd88::79', '10.88.0.79/24'] } },
  },
  {
    name: 'host-local, ranges from runtimeConfig',
    plugins: [local({ ranges: [V4] })],
    more: { runtimeConfig: { ipRanges: [[{ subnet: '10.86.0.0/24' }], [{ subnet: 'fd86::/64' }]] } },
  },
  {
    name: 'host-local, wanted address is taken',
    plugins: [local({ ranges: [V4] })],
    args: 'IP=10.88.0.5',
    prepare: leases({ '10.88.0.5': 'x\r\neth0' }),
    steps: FAILURE,
  },
  {
    name: 'host-local, wanted address is the gateway',
    plugins: [local({ ranges: [V4] })],
    args: 'IP=10.88.0.1',
    steps: FAILURE,
  },
  {
    name: 'host-local, wanted address out of range',
    plugins: [local({ ranges: [V4] })],
    args: 'IP=192.0.2.1',
    steps: FAILURE,
  },
  {
    name: 'host-local, wanted address that is none',
    plugins: [local({ ranges: [V4] })],
    args: 'IP=10.88.0',
    steps: FAILURE,
  },
  {
    name: 'host-local, wanted address with a lease already',
    plugins: [local({ ranges: [V4] })],
    steps: ['ADD', { verb: 'ADD', label: 'ADD of another', args: 'IP=10.88.0.50' }, 'DEL'],
  },
  { name: 'host-local, no ranges', plugins: [local({})], steps: FAILURE },
  { name: 'host-local, no ipam', plugins: [{ type: 'host-local' }], steps: FAILURE },
  { name: 'host-local, empty set', plugins: [local({ ranges: [[]] })], steps: FAILURE },
  { name: 'host-local, mixed set', plugins: [local({ ranges: [[...V4, ...V6]] })], steps: FAILURE },
  {
    name: 'host-local, overlapping ranges',
    plugins: [local({ ranges: [[...V4, { subnet: '10.88.0.0/25' }]] })],
    steps: FAILURE,
  },
  {
    name: 'host-local, overlapping sets',
    plugins: [local({ ranges: [V4, [{ subnet: '10.88.0.128/25' }]] })],
    steps: FAILURE,
  },
  { name: 'host-local, subnet too small', plugins: [local({ subnet: '10.88.0.0/31' })], steps: FAILURE },
  {
    name: 'host-local, start behind end',
    plugins: [local({ subnet: '10.88.0.0/24', rangeStart: '10.88.0.9', rangeEnd: '10.88.0.8' })],
    steps: FAILURE,
  },
  {
    name: 'host-local, start out of the subnet',
    plugins: [local({ subnet: '10.88.0.0/24', rangeStart: '10.89.0.9' })],
    steps: FAILURE,
  },
  {
    name: 'host-local, subnet with leading zeros',
    plugins: [local({ subnet: '010.88.0.0/24' })],
    steps: FAILURE,
  },
];

const STATIC = { type: 'static' };

const STATIC_ROWS: readonly TwinRow[] = [
  {
    name: 'static, addresses, routes and dns',
    plugins: [
      own(STATIC, {
        addresses: [
          { address: '10.88.0.5/24', gateway: '10.88.0.1' },
          { address: 'fd88::5/64', gateway: 'fd88::1', version: '6' },
        ],
        routes: [{ dst: '0.0.0.0/0' }, { dst: '192.0.2.0/24', gw: '10.88.0.9' }],
        dns: { nameservers: ['192.0.2.53'], domain: 'a.test', search: ['b.test'], options: ['x'] },
      }),
    ],
  },
  {
    name: 'static, version 0.4.0',
    cniVersion: '0.4.0',
    plugins: [
      own(STATIC, {
        addresses: [{ address: '10.88.0.5/24', gateway: '10.88.0.1' }, { address: 'fd88::5/64' }],
      }),
    ],
  },
  {
    name: 'static, version 0.2.0',
    cniVersion: '0.2.0',
    plugins: [
      own(STATIC, {
        addresses: [{ address: '10.88.0.5/24', gateway: '10.88.0.1' }],
        routes: [{ dst: '0.0.0.0/0' }],
      }),
    ],
    steps: ['ADD', 'DEL'],
  },
  {
    name: 'static, addresses from CNI_ARGS',
    plugins: [own(STATIC, {})],
    args: 'IP=10.88.0.6/24,fd88::6/64;GATEWAY=10.88.0.1,fd88::1',
  },
  {
    name: 'static, CNI_ARGS besides addresses',
    plugins: [own(STATIC, { addresses: [{ address: '10.88.0.5/24' }] })],
    args: 'IP=10.89.0.6/24;GATEWAY=10.88.0.1',
  },
  {
    name: 'static, addresses from args.cni',
    plugins: [own(STATIC, { addresses: [{ address: '10.88.0.5/24', gateway: '10.88.0.1' }] })],
    more: { args: { cni: { ips: ['10.88.0.7/24'] } } },
  },
  {
    name: 'static, addresses from runtimeConfig',
    plugins: [own(STATIC, { addresses: [{ address: '10.88.0.5/24', gateway: '10.88.0.1' }] })],
    more: {
      runtimeConfig: { ips: ['10.88.0.8/24', 'fd88::8/64'] },
      args: { cni: { ips: ['10.88.0.7/24'] } },
    },
  },
  { name: 'static, no addresses', plugins: [own(STATIC, {})], steps: ['ADD', 'DEL'] },
  {
    name: 'static, address without prefix',
    plugins: [own(STATIC, { addresses: [{ address: '10.88.0.5' }] })],
    steps: FAILURE,
  },
  { name: 'static, no ipam', plugins: [STATIC], steps: FAILURE },
  {
    name: 'static, CHECK: another gateway',
    plugins: [own(STATIC, { addresses: [{ address: '10.88.0.5/24', gateway: '10.88.0.1' }] })],
    steps: [
      'ADD',
      {
        verb: 'CHECK',
        plugins: [own(STATIC, { addresses: [{ address: '10.88.0.5/24', gateway: '10.88.0.2' }] })],
      },
    ],
  },
  {
    name: 'static, CHECK: an address is missing',
    plugins: [own(STATIC, { addresses: [{ address: '10.88.0.5/24' }] })],
    steps: ['ADD', { verb: 'CHECK', plugins: [own(STATIC, { addresses: [{ address: '10.88.0.9/24' }] })] }],
  },
  {
    name: 'bridge with static',
    plugins: [
      bridged(
        {
          ...STATIC,
          addresses: [{ address: '10.88.0.5/24', gateway: '10.88.0.1' }, { address: 'fd88::5/64' }],
          routes: [{ dst: '0.0.0.0/0' }],
        },
        { isGateway: true },
      ),
    ],
  },
  { name: 'bridge with static, no addresses', plugins: [bridged({ ...STATIC })], steps: FAILURE },
  {
    name: 'bridge with static, the same address twice',
    plugins: [bridged({ ...STATIC, addresses: [{ address: '10.88.0.5/24' }, { address: '10.88.0.5/24' }] })],
    steps: FAILURE,
  },
  {
    name: 'bridge with static, host prefix',
    plugins: [bridged({ ...STATIC, addresses: [{ address: '10.88.0.5/32' }] })],
    steps: ['ADD', 'DEL'],
  },
];

/** All rows of IPAM plugins. */
export const IPAM_ROWS: readonly TwinRow[] = [...HOST_LOCAL_ROWS, ...STATIC_ROWS];

/** host-local called alone, as bridge calls it. */
function local(options: Json): Json {
  return own({ type: 'host-local' }, { dataDir: '{tmp}/leases', ...options });
}

function own(link: Json, options: Json): Json {
  return { ...link, ipam: { type: link.type, ...options } };
}

/** Puts files among the leases beforehand. */
function leases(files: Readonly<Record<string, string>>) {
  return async ({ lab }: Ground): Promise<void> => {
    const dir = `${lab.tmp}/leases/podnet`;
    fs.mkdirSync(dir, { recursive: true });
    for (const [name, content] of Object.entries(files)) fs.writeFileSync(`${dir}/${name}`, content);
  };
}
