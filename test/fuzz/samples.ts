// From which valid inputs are the damaged ones made?
import fs from 'node:fs';
import path from 'node:path';
import type { JsonObject } from '../../src/cni/json.ts';
import { bytesOf } from '../golden/rtnl/captured.ts';
import { listFiles, ROOT } from '../helpers/source-tree.ts';
import { deviceRequests } from './device-samples.ts';

/** The example conflists of this repository. */
export const LISTS: readonly JsonObject[] = listFiles('conflists').map(readJson);

/** Text of the example conflists. */
export const LIST_TEXTS: readonly string[] = LISTS.map(list => JSON.stringify(list, null, 2));

/** Results as plugins print them, in each layout. */
export const RESULTS: readonly JsonObject[] = [
  {
    cniVersion: '1.1.0',
    interfaces: [
      { name: 'br0', mac: '02:00:00:00:00:01', mtu: 1500 },
      { name: 'veth1', mac: '02:00:00:00:00:02' },
      { name: 'eth0', mac: '02:00:00:00:00:03', sandbox: '/run/netns/c1' },
    ],
    ips: [
      { address: '10.9.0.2/24', gateway: '10.9.0.1', interface: 2 },
      { address: 'fd00::2/64', gateway: 'fd00::1', interface: 2 },
    ],
    routes: [{ dst: '0.0.0.0/0', gw: '10.9.0.1', mtu: 1400, priority: 10, table: 100 }, { dst: '::/0' }],
    dns: { nameservers: ['10.9.0.1'], domain: 'a.b', search: ['c.d'], options: ['ndots:5'] },
  },
  {
    cniVersion: '0.4.0',
    interfaces: [{ name: 'eth0', sandbox: '/run/netns/c1' }],
    ips: [{ version: '4', address: '10.9.0.2/24', interface: 0 }],
    dns: {},
  },
  {
    cniVersion: '0.2.0',
    ip4: { ip: '10.9.0.2/24', gateway: '10.9.0.1', routes: [{ dst: '0.0.0.0/0' }] },
    dns: {},
  },
];

/** A request to each plugin of each example; and further ones that the examples lack. */
export const REQUESTS: readonly JsonObject[] = [
  ...LISTS.flatMap(({ plugins, name, cniVersion }) => {
    const links = Array.isArray(plugins) ? (plugins as JsonObject[]) : [];
    return links.map((link, i) => ({
      ...link,
      name,
      cniVersion,
      ...(i === 0 ? {} : { prevResult: RESULTS[0] }),
    }));
  }),
  ...moreRequests(),
  ...deviceRequests(RESULTS[0]),
];

/** Whole netlink messages as the kernel and we write them: every listing of the golden tests. */
export const MESSAGES: readonly Uint8Array[] = listFiles('test/golden')
  .filter(file => file.endsWith('.test.ts'))
  .flatMap(file => [...fs.readFileSync(path.join(ROOT, file), 'utf8').matchAll(/`\n([^`$]+)`/g)])
  .flatMap(([, listing = '']) =>
    /^ *[0-9a-f]{2} [0-9a-f]{2} 00 00 {2}nlmsg_len/.test(listing) ? [bytesOf(listing)] : [],
  );

const INTENT: JsonObject = {
  record: 2,
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/run/netns/c1',
  netnsIdentity: '4:5',
  boot: 'b',
  owner: 'o',
  args: [['IgnoreUnknown', '1']],
  capabilityArgs: { portMappings: [] },
  source: LIST_TEXTS[0],
  pluginDirs: ['/opt/cni/bin'],
  executables: ['/opt/cni/bin/bridge'],
  cacheDir: '/var/lib/cni',
  request: 'r',
  runner: { pid: 1, start: '1', pidns: '1', op: 'a', time: 't' },
  ...{ phase: 'adding', added: false, segment: -1, runners: [], attempts: 0, lastErrors: [] },
};

const RUNNER = { pid: 2, start: '2', pidns: '1', op: 'b', time: 't' };

/** Notes of an ADD, a DEL, a change, and of failures. */
export const NOTES: readonly JsonObject[] = [
  { ...INTENT, segment: 1, result: RESULTS[0] },
  { ...INTENT, phase: 'deleting', added: true, runners: [RUNNER] },
  {
    ...INTENT,
    ...{ phase: 'attached', added: true, runners: [RUNNER] },
    change: { to: { capabilityArgs: {}, source: LIST_TEXTS[0] }, plugins: [1], op: 'c' },
  },
  { ...INTENT, phase: 'failed', attempts: 2, lastAttempt: 't', lastErrors: [{ code: 11, msg: 'busy' }] },
];

function readJson(file: string): JsonObject {
  return JSON.parse(fs.readFileSync(path.join(ROOT, file), 'utf8')) as JsonObject;
}

function moreRequests(): JsonObject[] {
  const base = { cniVersion: '1.1.0', name: 'podnet' };
  const prevResult = RESULTS[0];
  const ranges = [
    [{ subnet: '10.9.0.0/24', rangeStart: '10.9.0.10', rangeEnd: '10.9.0.20', gateway: '10.9.0.1' }],
  ];
  return [
    {
      ...base,
      type: 'host-local',
      ipam: { type: 'host-local', ranges, routes: [{ dst: '0.0.0.0/0' }], resolvConf: '/etc/resolv.conf' },
    },
    {
      ...base,
      type: 'host-local',
      ipam: { type: 'host-local', subnet: 'fd00::/64' },
      args: { cni: { ips: ['fd00::9'] } },
    },
    {
      ...base,
      type: 'static',
      ipam: {
        type: 'static',
        addresses: [{ address: '10.9.0.3/24', gateway: '10.9.0.1' }],
        routes: [{ dst: '::/0' }],
        dns: {},
      },
    },
    {
      ...base,
      type: 'flannel',
      subnetFile: '/nonexistent/subnet.env',
      delegate: { isDefaultGateway: true },
      ipam: {},
    },
    {
      ...base,
      type: 'host-device',
      device: 'nope0',
      hwaddr: '02:00:00:00:00:09',
      kernelpath: '/sys/devices/nope',
      pciBusID: 'ffff:ff:ff.7',
      useInterfaceNetwork: true,
      runtimeConfig: { deviceID: 'nope.sf.1' },
      prevResult,
    },
    {
      ...base,
      type: 'tap',
      owner: 1,
      group: 1,
      multiQueue: true,
      mtu: 1400,
      mac: '02:00:00:00:00:09',
      bridge: 'nope0',
      prevResult,
    },
    { ...base, type: 'tap', kind: 'macvtap', master: 'nope0', mode: 'vepa', prevResult },
    { ...base, type: 'sbr', table: 100, prevResult },
    { ...base, type: 'vrf', vrfname: 'blue', table: 100, prevResult },
    { ...base, type: 'dummy', mac: '02:00:00:00:00:01', mtu: 1400, ipam: {} },
    {
      ...base,
      type: 'firewall',
      backend: 'nftables',
      ingressPolicy: 'same-bridge',
      firewalldZone: 'trusted',
      prevResult,
    },
    {
      ...base,
      type: 'portmap',
      snat: true,
      conditionsV4: ['ip saddr 10.0.0.0/8'],
      markMasqBit: 13,
      prevResult,
      runtimeConfig: {
        portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp', hostIP: '127.0.0.1' }],
      },
    },
    {
      ...base,
      type: 'bandwidth',
      ingressRate: 1_000_000,
      ingressBurst: 1_000_000,
      egressRate: 8,
      egressBurst: 8,
      prevResult,
      shapedSubnets: ['10.0.0.0/8'],
      runtimeConfig: { bandwidth: { ingressRate: 1, ingressBurst: 1 } },
    },
    {
      ...base,
      type: 'tuning',
      sysctl: { 'net.ipv4.conf.IFNAME.arp_notify': '1' },
      mac: '02:00:00:00:00:09',
      mtu: 1400,
      promisc: true,
      args: { cni: { mac: '02:00:00:00:00:08', sysctl: { 'net.core.somaxconn': '10' } } },
      prevResult,
    },
    {
      ...base,
      type: 'catena',
      delegates: LISTS.slice(0, 2),
      networks: ['a', { name: 'b', interface: 'net1', mac: '02:00:00:00:00:07' }],
      namespaceIsolation: true,
      globalNamespaces: 'default,kube-system',
      runtimeConfig: { 'io.kubernetes.cri.pod-annotations': { 'k8s.v1.cni.cncf.io/networks': 'a,b@net1' } },
    },
    {
      ...base,
      type: 'bridge',
      bridge: 'br0',
      vlan: 100,
      vlanTrunk: [{ minID: 1, maxID: 9 }],
      preserveDefaultVlan: false,
      macspoofchk: true,
      ipMasq: true,
      ipMasqBackend: 'nftables',
      hairpinMode: true,
      mtu: 1400,
      runtimeConfig: { mac: '02:00:00:00:00:06', ips: ['10.9.0.4/24'] },
      'cni.dev/valid-attachments': [{ containerID: 'c1', ifname: 'eth0' }],
      ipam: { type: 'host-local', subnet: '10.9.0.0/24' },
    },
  ];
}
