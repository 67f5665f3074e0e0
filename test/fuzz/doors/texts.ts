// Are texts in other languages parsed safely: annotations, flanneld's file, resolv.conf, allowlist, conditions, addresses?
import fc from 'fast-check';
import { parseSubnetEnv } from '../../../plugins/flannel/plugin.ts';
import { parseRangeSets } from '../../../plugins/host-local/plan.ts';
import { parseResolvConf } from '../../../plugins/host-local/plugin.ts';
import { parseAllowlist, planSysctls } from '../../../plugins/tuning/allowlist.ts';
import { findRepeatedKey } from '../../../plugins/tuning/plugin.ts';

import { ErrorCode } from '../../../src/cni/errors.ts';
import { parseSelections } from '../../../src/delegate/selection.ts';
import { findIfnameProblem, parseMac } from '../../../src/net/interface.ts';
import { findCidr, findIp, renderCidr, renderIp } from '../../../src/net/ip.ts';
import { parseMatch } from '../../../src/netlink/nft/match.ts';
import { parseLogDestination, parseLogLevels } from '../../../src/observe/log-output.ts';
import { door } from '../door.ts';
import { damagedJsonText, damagedText, strangeText } from '../mutate.ts';
import { answersOrComplains, answersOrRefuses } from '../promise.ts';

const SELECTIONS = [
  {
    name: 'a',
    namespace: 'b',
    interface: 'net1',
    ips: ['10.9.0.2/24'],
    mac: '02:00:00:00:00:01',
    'default-route': ['10.9.0.1'],
  },
  {
    name: 'a',
    portMappings: [{ hostPort: 80, containerPort: 80, protocol: 'tcp' }],
    bandwidth: { ingressRate: 1, ingressBurst: 1 },
    'cni-args': {},
  },
];

const MOST_NETWORKS = 64;

/** Which networks a pod requests. */
export const annotation = door({
  name: 'pod annotation',
  weight: 10,
  // The error repeated the whole annotation.
  seeds: ['['.repeat(50_000)],
  arbitrary: fc.oneof(
    damagedText(['a', 'ns/a@net1,b@net2', 'a, b ,c', 'kube-system/multus@eth0']),
    damagedJsonText(SELECTIONS).map(text => `[${text}]`),
    damagedJsonText(SELECTIONS),
    // As large as Kubernetes lets an annotation be: many, and deep.
    fc.nat(120_000).map(count => 'a,'.repeat(count)),
    fc.nat(13_000).map(count => `[${Array(count).fill('{"name":"a"}').join()}]`),
    fc
      .nat(60_000)
      .map(levels => `[{"name":"a","cni-args":{"x":${'['.repeat(levels)}${']'.repeat(levels)}}}]`),
  ),
  run(text) {
    const selections = answersOrRefuses(
      () => parseSelections(text, 'annotation "a"', MOST_NETWORKS),
      ErrorCode.invalidConfig,
      ErrorCode.decodingFailure,
    );
    if (selections && selections.length > MOST_NETWORKS) throw new Error(`it let ${selections.length} in`);
    // As planning and the records do.
    JSON.stringify(selections);
    for (const { name, namespace, ifname, config } of selections ?? []) {
      // Names become file names; a configuration would be run as root.
      if (config !== undefined) throw new Error('a pod brought a configuration of its own');
      if (/[/\0]|^\.\.?$/.test(name) || /[/\0.]/.test(namespace ?? ''))
        throw new Error(`it let "${namespace}/${name}" in`);
      if (ifname !== undefined && findIfnameProblem(ifname))
        throw new Error(`it let interface "${ifname}" in`);
    }
  },
});

/** flanneld's file. */
export const subnetFile = door({
  name: 'flannel subnet file',
  weight: 6,
  arbitrary: damagedText([
    'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n',
    'FLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:1::1/64\nFLANNEL_MTU=1450\r\nFLANNEL_IPMASQ=false\n',
  ]),
  run(text) {
    answersOrRefuses(() => parseSubnetEnv(text, '/run/flannel/subnet.env'), ErrorCode.invalidConfig);
  },
});

/** A file in the format of resolv.conf(5). */
export const resolvConf = door({
  name: 'resolv.conf',
  weight: 3,
  arbitrary: damagedText(['nameserver 10.0.0.1\nsearch a b\ndomain c\noptions ndots:5 edns0\n# x\n; y\n']),
  run(text) {
    JSON.stringify(parseResolvConf(text));
  },
});

/** Which sysctls are allowed, as Go regular expressions. */
export const allowlist = door({
  name: 'sysctl allowlist',
  weight: 5,
  arbitrary: fc.tuple(
    damagedText([
      '^net\\.ipv4\\.conf\\..*$\nnet.core.somaxconn\n',
      '[[:alpha:]]+\\pL\\x{41}\\Qa\\E(?i)b(?P<n>c)\n',
      '[^]a-]\n',
    ]),
    strangeText,
  ),
  run([text, key]) {
    const rules = answersOrComplains(() => parseAllowlist(text)) ?? [];
    for (const { pattern } of rules) pattern.test(key.slice(0, 40));
  },
});

/** Names of sysctls, and keys that occur twice in a document. */
export const sysctls = door({
  name: 'sysctl names',
  weight: 6,
  arbitrary: fc.tuple(
    damagedText([
      'net.ipv4.conf.IFNAME.arp_notify',
      'net/core/somaxconn',
      'net.ipv4.conf.eth0/100.forwarding',
    ]),
    strangeText,
  ),
  run([key, ifname]) {
    if (findIfnameProblem(ifname)) return;
    const planned =
      answersOrRefuses(() => planSysctls([{ [key]: '1' }], ifname), ErrorCode.invalidConfig) ?? [];
    for (const place of planned.flatMap(({ paths }) => paths)) {
      if (!place.startsWith('net/') || place.split('/').includes('..'))
        throw new Error(`it would write to "${place}"`);
    }
    findRepeatedKey(JSON.stringify({ sysctl: { [key]: '1', [`${key}x`]: '2' } }), 'sysctl');
  },
});

/** portmap's conditions, in the syntax of nft. */
export const conditions = door({
  name: 'portmap conditions',
  weight: 6,
  arbitrary: fc.tuple(
    damagedText([
      'ip saddr 10.0.0.0/8',
      'ip saddr != { 10.0.0.1, 10.0.0.2-10.0.0.9 } tcp dport 80-90',
      'meta mark & 0xff == 0x1',
      'ct state new,established iifname "eth*"',
    ]),
    fc.constantFrom(4 as const, 6 as const),
  ),
  run([text, family]) {
    answersOrComplains(() => parseMatch(family, text));
  },
});

/** Ranges of addresses. */
export const ranges = door({
  name: 'address ranges',
  weight: 5,
  arbitrary: fc.array(
    fc.array(
      fc.record(
        { subnet: address(), rangeStart: address(), rangeEnd: address(), gateway: address() },
        { requiredKeys: ['subnet'] },
      ),
      { minLength: 1, maxLength: 3 },
    ),
    { maxLength: 3 },
  ),
  run(sets) {
    const parsed = answersOrComplains(() => parseRangeSets(sets)) ?? [];
    for (const { start, end } of parsed.flat() as { start?: { value: bigint }; end?: { value: bigint } }[]) {
      if (start && end && start.value > end.value) throw new Error('a range ends before it begins');
    }
  },
});

/** Single addresses: parsing and rendering must be inverse. */
export const addresses = door({
  name: 'addresses',
  weight: 8,
  arbitrary: address(),
  run(text) {
    const ip = findIp(text);
    if (ip && findIp(renderIp(ip))?.value !== ip.value) throw new Error(`it becomes "${renderIp(ip)}"`);
    const cidr = findCidr(text);
    if (cidr && renderCidr(findCidr(renderCidr(cidr)) ?? cidr) !== renderCidr(cidr))
      throw new Error('it does not settle');
    answersOrComplains(() => parseMac(text));
  },
});

/** An operator's log options. */
export const logWords = door({
  name: 'log options',
  weight: 2,
  arbitrary: damagedText([
    'info',
    'bridge=debug,portmap=error',
    'file:/var/log/catena.log',
    'syslog',
    'journal',
    'stderr',
  ]),
  run(text) {
    answersOrComplains(() => parseLogLevels(text));
    answersOrComplains(() => parseLogDestination(text));
  },
});

function address(): fc.Arbitrary<string> {
  return damagedText([
    '10.9.0.0/24',
    '10.9.0.200',
    'fd00::/64',
    'fd00::ffff',
    '::ffff:10.0.0.1',
    '02:00:00:00:00:01',
    '255.255.255.255/32',
    '::/0',
  ]);
}
