// In what do our plugins intentionally differ from the reference's, and why?

/** One place where the twins differ; a side that lacks it has `undefined`. */
export interface Finding {
  readonly row: string;
  /** Step, side of the ground, kind, name, field: `ADD/host/link/br0/mtu`. */
  readonly path: string;
  readonly reference: unknown;
  readonly ours: unknown;
}

/** The parts of the table. */
export type TableName =
  | 'links'
  | 'chains'
  | 'ports'
  | 'vlans'
  | 'macvlans'
  | 'devices'
  | 'uppers'
  | 'vrfs'
  | 'swaps';

/** A difference that may occur; it explains a finding if all its conditions match. */
export interface Difference {
  /** Matches the place; steps that fail on both sides read `ADD (fails)`. */
  readonly path: RegExp;
  /** Matches the row's name; default every row. */
  readonly rows?: RegExp;
  readonly when?: (finding: Finding) => boolean;
  readonly reason: string;
  /** Where the reference's behaviour is described: the quirk's number in the notes on it, or its version. */
  readonly quirk?: string;
  /** The part in which it must occur at least once; default every part that all kernels can run. */
  readonly in?: TableName | readonly TableName[];
}

const onlyOurs = ({ reference }: Finding): boolean => reference === undefined;
const onlyReference = ({ ours }: Finding): boolean => ours === undefined;
const from = (reference: unknown, ours: unknown) => (finding: Finding) => {
  return Object.is(finding.reference, reference) && Object.is(finding.ours, ours);
};

/** Each of them must occur, and no other difference may. */
export const DIFFERENCES: readonly Difference[] = [
  {
    path: /\/reply\/result\/dns$/,
    when: onlyReference,
    reason: 'dns without content is left out, as the reference does since 1.2',
    quirk: 'bridge 1.2',
  },
  {
    path: /\/interface\/[^/]+\/link\/txqlen$/,
    when: from(undefined, 1000),
    reason: 'both ends of the pair keep the usual queue length, so that a shaper put on them later works',
    quirk: 'bridge 23',
  },
  {
    path: /^ADD again\/(reply\/result\/interfaces\/1\/(name|mac)|host\/interface\/veth#[12])$/,
    rows: /^bridge, ADD after DEL$/,
    in: 'links',
    reason: "the host's end has a name of its attachment, by which DEL recognises what a killed ADD left",
  },
  {
    path: /\/host\/interface\/(veth#\d+|bwp[^/]+)\/(sysctl\/ipv6\/conf\/disable_ipv6|(address|route)\/.*(fe80|ff00)::.*)$/,
    when: finding => onlyReference(finding) || from('0', '1')(finding),
    reason:
      'a port of a bridge and the device of a shaper have no addresses: routes and groups that come with them make each ADD slower, the more containers there are',
  },
  {
    path: /\/link\/ifalias$/,
    when: onlyOurs,
    reason: 'the alias names bridge and attachment, so that DEL and GC find them without the namespace',
    quirk: 'bridge 3',
  },
  {
    path: /\/address\/[^/]+\/\d+\/nodad$/,
    when: onlyOurs,
    reason: 'IPv6 addresses work at once: no other host can have them, unless enabledad requests detection',
    quirk: 'bridge 20',
  },
  {
    path: /\/interface\/(br0|cni0|veth#\d|eth0)\/sysctl\/ipv6\/conf\/accept_dad$/,
    when: from('1', '0'),
    reason: 'IPv6 addresses of bridges and of ptp work at once, too',
    quirk: 'bridge 20',
  },
  {
    path: /\/host\/interface\/(up[01]|outside0)\/sysctl\/ipv6\/conf\/accept_ra$/,
    when: from('1', '2'),
    reason: 'the host keeps its IPv6 router when forwarding is turned on',
    quirk: 'bridge 47',
    in: ['links', 'swaps'],
  },
  {
    path: /\/twin-\d\/interface\/[^/]+\/sysctl\/ipv6\/conf\/(accept_ra|autoconf|accept_redirects)$/,
    when: from('1', '0'),
    reason: 'no neighbour routes a container by advertisements or redirects (CVE-2020-13401)',
  },
  {
    path: /\/twin-\d\/(interface\/[^/]+\/sysctl\/ipv4\/conf\/accept_source_route|(interface\/[^/]+\/)?sysctl\/ipv4\/conf\/(all\/)?accept_redirects)$/,
    when: from('1', '0'),
    reason: 'no neighbour routes a container by advertisements or redirects (CVE-2020-13401)',
  },
  {
    path: /\/sysctl\/ipv6\/conf\/ndisc_notify$/,
    when: from('0', '1'),
    reason: 'neighbours hear of the IPv6 addresses at once, so that none is misled by an earlier owner',
    quirk: 'bridge 21',
  },
  {
    path: /\/sysctl\/ipv6\/conf\/keep_addr_on_down$/,
    when: from('0', '1'),
    reason: 'IPv6 addresses survive a down, as with the reference since 1.2',
    quirk: 'bridge 1.2',
  },
  {
    path: /\/files\/leases\/podnet\/.catena-[a-z]+$/,
    when: onlyOurs,
    reason: 'an index of owners, so that no call reads every lease',
    quirk: 'bridge 44',
  },
  {
    path: /\/files\/run\//,
    when: onlyOurs,
    reason: 'a lock lets a bridge come and go without a race',
    quirk: 'bridge 8',
  },
  {
    path: /\/files\/leases\/podnet\/lock$/,
    when: onlyReference,
    reason: 'a call without anything to reserve or release makes no directory',
    in: 'links',
  },
  {
    path: /^DEL[^/]*\/host\/interface\/(br0|cni0)$/,
    when: onlyReference,
    reason: 'a failed ADD leaves no bridge behind, and a list that is refused makes none',
    quirk: 'bridge 37',
    in: 'links',
  },
  {
    path: /^ADD \(fails\)\/(host|twin-\d)\/interface\/[^/]+$/,
    when: onlyReference,
    reason: 'a failed ADD leaves no interface behind',
    quirk: 'bridge 1, 2, 37',
    in: 'links',
  },
  {
    path: /\(fails\)\/reply\/code$/,
    when: ({ reference, ours }) =>
      reference === 999 && [2, 4, 7, 8, 11, 50, 100, 101, 102].includes(Number(ours)),
    reason: 'an error has a code of its own where the reference has 999 for all',
    quirk: 'bridge 36',
    in: ['links', 'chains', 'ports', 'macvlans', 'devices', 'uppers', 'vrfs'],
  },
  // If one side fails and the other does not, everything after that differs.
  ...diverging('links', {
    'bridge, negative mtu': ['a negative MTU is refused', 'bridge 31'],
    'bridge, two range sets of IPv4 with gateways': ['a bridge has a gateway for each set', 'bridge 10'],
    'bridge, two range sets of IPv4 with gateways, forceAddress': [
      'gateways of other subnets are no conflict',
      'bridge 10',
    ],
    'bridge, default route of IPAM without gateway': [
      'a default route without gateway gets that of its family, once',
      'bridge 8',
    ],
    'bridge, no IPAM, CHECK': ['CHECK works without IPAM', 'bridge 13'],
    'bridge exists, with a foreign IPv4 address': ['foreign addresses are no conflict', 'bridge 11'],
    'bridge, routes': ['CHECK knows which routes need no gateway', 'bridge 14'],
    'bridge, CHECK: the gateway address is missing': ['CHECK looks at the gateway', 'bridge 15'],
    'bridge, DEL without namespace': ['DEL finds the pair without the namespace', 'bridge 3'],
    'bridge, DEL with a file that is no namespace': ['what is no namespace is gone', 'bridge 4'],
    'host-local, bounds are network and broadcast': [
      'what no container can have is not handed out',
      'bridge 42',
    ],
    'host-local, wanted address with a lease already': ['one address per set, also when wanted', 'bridge 39'],
    'loopback, with another address': ['further addresses on lo are left alone', 'loopback 2'],
    'loopback, version 0.2.0': ['results have the shape of their version', 'loopback 2'],
    'loopback, version 0.4.0': ['results have the shape of their version', 'loopback 2'],
    'bridge, IPv6 disabled by default': ['devices of ours get IPv6 where the host disables it', 'bridge 22'],
    'refused: route that the kernel refuses': ['a gateway outside of the subnet is on the link', 'bridge 11'],
    'host-local, subnet too small': ['a subnet of two addresses is used whole (RFC 3021)', 'bridge 42'],
    'refused: the same route twice': ['a route that is there already is fine', 'bridge 8'],
    'bridge with static, the same address twice': ['an address counts once', 'static'],
    'static, CHECK: an address is missing': ['CHECK misses addresses', 'bridge 46'],
    'ptp, no IPAM': ['without IPAM there is nothing to release', 'ptp 3'],
    'ptp, DEL without namespace': ['DEL finds the pair without the namespace', 'ptp 11'],
    'ptp, host prefix': ['addresses with host prefixes work', 'ptp 11'],
    'refused: no CNI_PATH': ['CNI_PATH is optional, as in the specification', 'SPEC "Parameters"'],
    'refused: route without destination': [
      'what cannot be read is refused on each verb; nothing was reserved for it',
      'bridge 36',
    ],
    'refused: vlan out of range': ['DEL does not depend on options of ADD', 'bridge 3.8'],
    'refused: vlan negative': ['DEL does not depend on options of ADD', 'bridge 3.8'],
    'refused: mtu as text': ['DEL does not depend on options of ADD', 'bridge 3.8'],
    'refused: mtu with a fraction': ['DEL does not depend on options of ADD', 'bridge 3.8'],
    'refused: isGateway as text': ['DEL does not depend on options of ADD', 'bridge 3.8'],
    'refused: ipam as text': ['DEL does not depend on options of ADD', 'bridge 3.8'],
    'refused: dns as text': ['DEL does not depend on options of ADD', 'bridge 3.8'],
    'refused: the own namespace': ['refused before anything is done', 'bridge 35'],
  }),
  ...diverging('macvlans', {
    'macvlan, mtu too large': ['DEL does not depend on options of ADD', 'other-plugins 4'],
    'macvlan, unknown mode': ['DEL does not depend on options of ADD', 'other-plugins 4'],
    'macvlan, no such master': ['DEL needs no master', 'other-plugins 4'],
    'macvlan, no default route': ['DEL needs no master', 'other-plugins 4'],
    'macvlan, DEL without master': ['DEL needs no master', 'other-plugins 4'],
    'macvlan, IPAM fails': [
      'a failed ADD leaves no interface behind, and release does not depend on ranges',
      'other-plugins 4',
    ],
  }),
  ...diverging('uppers', {
    'vlan, mtu too large': ['DEL does not depend on options of ADD', 'other-plugins 6'],
    'vlan, no such master': ['DEL needs no master', 'other-plugins 6'],
    'vlan, no master': ['DEL needs no master', 'other-plugins 6'],
    'vlan, id out of range': ['DEL does not depend on options of ADD', 'other-plugins 6'],
    'vlan, DEL without master': ['DEL needs no master', 'other-plugins 6'],
    'vlan, IPAM fails': [
      'a failed ADD leaves no interface behind, and release does not depend on ranges',
      'other-plugins 6',
    ],
    'vlan, interface name taken': ['a failed ADD leaves no interface behind', 'other-plugins 6'],
    'ipvlan, interface name taken': ['a failed ADD leaves no interface behind', 'other-plugins 5'],
    'ipvlan, no such master': ['where nothing was reserved, a release creates no directory', 'bridge 38'],
    'ipvlan, unknown mode': ['where nothing was reserved, a release creates no directory', 'bridge 38'],
    'ipvlan, master of the default route': ['CHECK finds the master as ADD does', 'other-plugins 5'],
    'ipvlan, mode l3': ['CHECK knows which routes need no gateway', 'bridge 14'],
    'ipvlan, mode l3s': ['CHECK knows which routes need no gateway', 'bridge 14'],
    'ipvlan, mtu too large': ['the MTU must fit the master', 'other-plugins 5'],
    'ipvlan, IPAM fails': [
      'a failed ADD leaves no interface behind, and release does not depend on ranges',
      'other-plugins 5',
    ],
  }),
  {
    path: /\/interface\/(eth0|net1)\/sysctl\/ipv4\/conf\/arp_notify$/,
    rows: /^(ptp|host-device|vlan), /,
    when: from('0', '1'),
    reason: 'neighbours hear of IPv4 addresses at once, as with bridge',
    quirk: 'bridge 21',
    in: ['links', 'devices', 'uppers'],
  },
  {
    path: /^DEL( again)?\/twin-1\/interface\/lo\/(link\/(flags\/(LOWER_)?UP|operstate)$|address\/|route\/local )/,
    rows: /^loopback, /,
    reason:
      'lo ends with its namespace; a late DEL would set down that of whichever container has the path by then',
    quirk: 'loopback, DEL',
    in: 'links',
  },
  {
    path: /\/host\/nft\/ip6? filter rule CNI-FORWARD #([4-9]|\d\d)(\/|$)/,
    rows: /^(firewall|swap, guarded)[, ]/,
    reason:
      'a published port is reachable beside a FORWARD policy of DROP: a third rule for each address, after the two of the reference',
    quirk: 'firewall 1',
    in: ['chains', 'swaps'],
  },
  {
    path: /^DEL\/host\/interface\/up0\/link\/ifalias$/,
    when: onlyReference,
    reason: 'a device that is home has the alias that it had before, as with the reference since 1.2',
    quirk: 'host-device',
    in: 'devices',
  },
  {
    path: /^ADD\/reply\/result\/ips\/0\/gateway$/,
    rows: /^static, (CNI_ARGS besides|addresses from (args|runtimeConfig))/,
    when: onlyOurs,
    reason: 'a gateway stays with its subnet, wherever the address comes from',
    quirk: 'bridge 46',
    in: 'links',
  },
  {
    path: /^(ADD \(fails\)|DEL)\/host\/(interface\/lo\/)?sysctl\//,
    rows: /^ptp, (interface name taken|no gateway)$/,
    reason: 'a failed ADD turns no forwarding on',
    quirk: 'ptp 3',
    in: 'links',
  },
  {
    path: /^DEL\/(reply\/(failed|code|result)|files\/leases\/podnet\/10\.88\.0\.2)$/,
    rows: /^host-local, |^refused: IPAM with a bad range$/,
    when: ({ reference }) => reference !== '',
    reason: 'release does not depend on whether ranges make sense',
    quirk: 'bridge 38',
    in: 'links',
  },
  {
    path: /\/(interfaces\/0\/mac|interface\/br0\/(link\/address|(address|route)\/.*fe80::\([^)]*\)(\/64)?( #\d)?))$/,
    rows: /^(bridge, (?!both families)|bridge with static, host|loopback, behind|refused: route that|vlan|vrf, (?!both families))/,
    reason: 'a bridge has a hardware address of its own from the start, and keeps it when ports come and go',
    quirk: 'bridge 9',
    in: ['links', 'vlans', 'vrfs'],
  },
  {
    path: /\/interface\/veth#\d\/vlan\/1$/,
    when: onlyReference,
    reason: 'a port in a VLAN leaves the default one, as with the reference since 1.8',
    quirk: 'bridge, preserveDefaultVlan',
    in: 'vlans',
  },
  {
    path: /\/interface\/br0\.\d+\/sysctl\/ipv6\/conf\/accept_(dad|ra)$/,
    when: from('1', '0'),
    reason:
      'the gateway of a VLAN is set up as a bridge is: its addresses work at once, and it listens to no router',
    quirk: 'bridge 20',
    in: 'vlans',
  },
  {
    path: /\/info_slave_data\/(id|no|designated_port)$/,
    reason: 'the gateway of a VLAN is a port before the container is; numbers of ports say nothing',
    in: 'vlans',
  },
  {
    path: /\/interface\/br0\/sysctl\/ipv6\/conf\/accept_ra$/,
    rows: /^bridge exists|^vlan, (bridge exists|no VLAN on)/,
    when: from('0', '1'),
    reason: 'a foreign bridge keeps its settings',
    in: ['links', 'vlans'],
  },
  {
    path: /^(ADD \(fails\)|DEL)\/host\/interface\/br0\/(link|address|route)\//,
    rows: /^bridge exists, (with an )?overlapping/,
    reason: 'a failed ADD leaves a foreign bridge as it was: down',
    quirk: 'bridge 1',
    in: 'links',
  },
  {
    path: /\/files\/leases\/podnet\/(last_reserved_ip\.\d)$/,
    rows: /^host-local/,
    when: onlyReference,
    reason: 'nothing is reserved before every set has an address to give',
    quirk: 'bridge 39',
    in: 'links',
  },
  {
    path: /\/reply\/result\/interfaces\/2\/mtu$/,
    when: onlyOurs,
    reason: 'the result has the new MTU, as the specification has it since 1.1.0',
    quirk: 'meta 42',
    in: ['chains', 'swaps'],
  },
  {
    path: /\/filter\/u32[^/]*\/parent$/,
    when: onlyReference,
    reason: 'the redirect is at the ingress hook, where it works with qdiscs of kind clsact, too',
    quirk: 'meta 26',
    in: ['chains', 'swaps'],
  },
  {
    path: /\/filter\/u32[^/]*\/options\/actions\/1$/,
    when: onlyReference,
    reason: 'one redirect is enough, the second is never reached',
    quirk: 'meta 31',
    in: ['chains', 'swaps'],
  },
  {
    path: /\/files\/tuning\/twin-\d_eth0\.json$/,
    when: ({ ours }) => ours === undefined || /"network"/.test(String(ours)),
    reason:
      'network and sysctls are kept, too, for GC and DEL; a failed ADD and a DEL without namespace leave no file',
    quirk: 'meta 36, 38',
    in: ['chains', 'swaps'],
  },
  {
    path: /^ADD\/(reply\/result\/interfaces\/2\/mac|twin-1\/interface\/eth0\/link\/address)$/,
    rows: /^tuning, mac with/,
    reason: 'the result has the hardware address as the kernel writes it',
    quirk: 'meta 42',
    in: 'chains',
  },
  {
    path: /^CHECK\/reply\/plugins$/,
    rows: /^tuning, mac with/,
    reason: 'an earlier plugin sees the address of the result',
    quirk: 'meta 42',
    in: 'chains',
  },
  {
    path: /^CHECK\/reply\/(failed|code|result)$/,
    rows: /^bandwidth, CHECK: no /,
    when: ({ path, ours }) => !path.endsWith('failed') || ours === true,
    reason: 'CHECK misses a bucket and a redirect',
    quirk: 'meta 28',
    in: 'chains',
  },
  {
    path: /^DEL\/reply\//,
    rows: /^tuning, unknown CNI_ARGS$/,
    reason: 'DEL does not depend on whether arguments make sense',
    quirk: 'tuning, DEL',
    in: 'chains',
  },
  {
    path: /^DEL[^/]*\/twin-1\/sysctl\/(core\/somaxconn|ipv4\/ip_local_port_range)$/,
    when: ({ ours }) => ours === '4096' || ours === '32768\t60999',
    reason: 'DEL brings the sysctls back',
    quirk: 'meta 36',
    in: ['chains', 'swaps'],
  },
  {
    path: /\/interface\/eth0\/link\/txqlen$/,
    rows: /^tuning, /,
    when: onlyOurs,
    reason: 'txQLen is obeyed, as by the reference since 1.2',
    quirk: 'tuning 1.2',
    in: 'chains',
  },
  {
    path: /^CHECK\/reply\/(failed|code|result)$/,
    rows: /^portmap, /,
    reason: 'CHECK finds the mappings; the reference looks for those of IPv4 among those of IPv6, until 1.3',
    quirk: 'portmap 1.3',
    in: 'ports',
  },
  {
    path: /^CHECK\/reply\/(failed|code|result)$/,
    rows: /^tuning, (sysctl( with several values)?$|all|mac with)|^bandwidth, (no limits|subnets without limits)$|^whole chain/,
    reason: 'CHECK compares what is configured: values, not their spelling',
    quirk: 'meta 28, 40',
    in: 'chains',
  },
  {
    path: /^CHECK \(fails\)\/reply\/plugins$/,
    reason: 'an earlier plugin notices, too',
    in: 'chains',
  },
  {
    path: /\/sysctl\/ipv4\/conf\/route_localnet$/,
    when: from('1', '0'),
    rows: /^portmap, (::|an IPv6 address of the host|(iptables, )?one address of the host|host port beyond 65535|unknown protocol)$/,
    reason:
      'route_localnet is set only where an IPv4 loopback address has a port that is forwarded to the pod',
    quirk: 'meta 15',
    in: 'ports',
  },
  {
    path: /^seen through mapped ports\/answer\/tcp from (outside|host) to v[46]$/,
    rows: /^portmap, masqAll$/,
    reason: 'masqAll is obeyed, as by the reference since 1.5',
    quirk: 'portmap 1.5',
    in: 'ports',
  },
  {
    path: /^still mapped\/answer\//,
    when: ({ ours }) => ours === 'no answer',
    reason: 'DEL needs no list of ports',
    quirk: 'meta 9',
    in: 'ports',
  },
  {
    path: /\/qdisc\/tbf\/options\/(burst|lat)$/,
    rows: /^bandwidth, (largest burst of runtimes|burst smaller than a frame)$/,
    reason:
      'a bucket holds at least a frame, and the largest that the kernel can express instead of a remainder',
    quirk: 'meta 24, 25',
    in: 'chains',
  },
  {
    path: /^DEL\//,
    rows: /^(bandwidth, (rate|burst|negative)|tuning, sysctl with a number$|firewall, policy as a number$)/,
    when: ({ path, reference, ours }) =>
      !path.includes('/interface/') || (reference !== undefined && ours === undefined),
    reason: 'DEL does not depend on whether the options make sense',
    quirk: 'meta 33',
    in: 'chains',
  },
  {
    path: /^DEL\//,
    rows: /^portmap, (host port 0|no container port|(iptables, )?mark bit|iptables, a chain of others, and)/,
    when: ({ path, reference, ours }) =>
      !path.includes('/interface/') || (reference !== undefined && ours === undefined),
    reason: 'DEL does not depend on whether the options make sense',
    quirk: 'meta 33',
    in: 'ports',
  },
  {
    path: /^DEL[^/]*\/host\/nft\/ip6? nat table nat$/,
    rows: /^portmap, iptables, /,
    when: onlyReference,
    reason: 'DEL does not make the table of a family that had no ports',
    quirk: 'portmap, DEL',
    in: 'ports',
  },
  {
    path: /^(ADD \(fails\)|DEL)\/host\/(nft\/ip6? nat |interface\/br0\/sysctl\/ipv4\/conf\/route_localnet$)/,
    rows: /^portmap, iptables, (a chain of others is missing|a match that is none)$/,
    when: ({ reference, ours }) => ours === undefined || (reference === '1' && ours === '0'),
    reason: 'a failed ADD leaves no rules, nor what all share',
    quirk: 'portmap, ADD',
    in: 'ports',
  },
  {
    path: /\/host\/nft\/inet catena_portmap /,
    rows: /^portmap, iptables, /,
    when: onlyOurs,
    reason: 'sets of nf_tables record the owner of each port, and keep pods from the loopback of the host',
    quirk: 'meta 13, 15',
    in: 'ports',
  },
  {
    path: /\/host\/nft\/inet catena_masquerade /,
    rows: /ipMasq, iptables|, iptables, ipMasq /,
    when: onlyOurs,
    reason: 'packets of no connection, which neither packet filter translates, are dropped by nf_tables',
    in: ['links', 'ports'],
  },
  {
    path: /\/host\/nft\/(inet|bridge) catena_firewall /,
    rows: /^firewall, /,
    when: onlyOurs,
    reason: 'sets of nf_tables record what may pass, and the owner of each address',
    quirk: 'meta 45, 46',
    in: 'chains',
  },
  {
    path: /^DEL 2\/host\/nft\/ip6? filter rule CNI-ISOLATION-STAGE-/,
    rows: /^firewall, iptables, same-bridge$/,
    reason: 'an interface is open again with the last pod behind it that was not',
    quirk: 'meta 47',
    in: 'chains',
  },
  {
    path: /^DEL\/host\/nft\/ip6? filter rule CNI-FORWARD/,
    rows: /^firewall, DEL without result$/,
    when: onlyReference,
    reason: 'DEL needs no result: what an attachment has is remembered',
    quirk: 'meta 46',
    in: 'chains',
  },
  {
    path: /\/interface\/eth0\/route\/\d+ unicast (fd88|fe80)::/,
    rows: /^sbr, /,
    when: onlyReference,
    reason: 'the table of an address holds no routes of the other family',
    quirk: 'meta 50',
    in: 'chains',
  },
  {
    path: /\/interface\/eth0\/route\/main unicast fe80::/,
    rows: /^sbr, /,
    when: onlyOurs,
    reason: 'link-local addresses stay reachable: they belong to the interface, not to an address',
    quirk: 'meta 50',
    in: 'chains',
  },
  {
    path: /^DEL of one\/twin-1\/interface\/eth0\/route\//,
    rows: /^sbr, DEL alone$/,
    reason: 'DEL moves routes back to the main table',
    quirk: 'sbr, DEL',
    in: 'chains',
  },
  {
    path: /\/rule\/\d+ \S+ \d+\/protocol$/,
    rows: /^sbr, /,
    reason: 'rules are marked, so that DEL finds them once nothing tells their addresses',
    quirk: 'sbr, DEL',
    in: 'chains',
  },
  {
    path: /^CHECK\/reply\//,
    rows: /^sbr, /,
    reason: 'the earlier plugin recognises a route that moved to another table',
    quirk: 'bridge 15',
    in: 'chains',
  },
  {
    path: /\/route\/500 unreachable default \d+( #2)?$/,
    rows: /^vrf, /,
    when: onlyOurs,
    reason: 'what has no route in the VRF is refused, and not sent by the main table',
    quirk: 'vrf',
    in: 'vrfs',
  },
  {
    path: /^ADD\/twin-1\/interface\/eth0\/route\/500 unicast default via /,
    rows: /^vrf, both families/,
    when: onlyOurs,
    reason: 'default routes follow the interface into the VRF',
    quirk: 'vrf',
    in: 'vrfs',
  },
  {
    path: /^CHECK\/reply\//,
    rows: /^vrf, (?!CHECK)/,
    reason: 'the earlier plugin recognises a route that moved to another table',
    quirk: 'bridge 15',
    in: 'vrfs',
  },
  {
    path: /^CHECK\/reply\//,
    rows: /^vrf, CHECK: the interface has left it$/,
    reason: 'CHECK notices that the interface has left the VRF',
    quirk: 'vrf',
    in: 'vrfs',
  },
  ...diverging('vrfs', { 'vrf, no name': ['DEL needs no valid options', 'vrf'] }),
  {
    path: /^DEL again\/reply\//,
    rows: /^sbr, /,
    reason: 'DEL may come twice',
    quirk: 'meta 49',
    in: 'chains',
  },
  {
    path: /^CHECK\/reply\/error$/,
    rows: /^swap, .* theirs: .*portmap/,
    when: ({ reference, ours }) =>
      ours === undefined && /could not check ipv6 dnat: /.test(String(reference)),
    reason: 'CHECK finds the mappings; the reference looks for those of IPv4 among those of IPv6, until 1.3',
    quirk: 'portmap 1.3',
    in: 'swaps',
  },
  {
    path: /^ADD\/twin-1\/interface\/eth0\/sysctl\/ipv4\/conf\/arp_notify$/,
    rows: /^swap, .* theirs: host-device/,
    when: from('0', '1'),
    reason: 'neighbours hear of IPv4 addresses at once, as with bridge',
    quirk: 'bridge 21',
    in: 'swaps',
  },
  {
    path: /^DEL of the peer\/host\/interface\/up[12]\/link\/ifalias$/,
    rows: /^swap, .* theirs: host-device/,
    when: onlyReference,
    reason: 'a device that is home has the alias that it had before, as with the reference since 1.2',
    quirk: 'host-device',
    in: 'swaps',
  },
  ...diverging('ports', {
    'portmap, mark bit out of range': ['marks are not used, so their bit does not matter', 'meta 18'],
    'portmap, two containers, one port': ['a port that is taken is refused', 'meta 13'],
  }),
  ...diverging('chains', {
    'bandwidth, rate without burst': ['a burst follows from rate and MTU', 'meta 25'],
    'bandwidth, ADD twice': ['ADD replaces what it made', 'meta 27'],
    'bandwidth, DEL alone': ['DEL takes buckets and redirect away, too', 'meta 26'],
    ...subnetRows(['unshapedSubnets', 'shapedSubnets', 'unshapedSubnets from runtimeConfig']),
    ...subnetRows(['unshapedSubnets, limits from runtimeConfig', 'unshapedSubnets, DEL after the namespace']),
    'bandwidth, both lists of subnets': ['lists that contradict each other are refused', 'bandwidth 1.5'],
    'bandwidth, a subnet that is none': ['lists are read, and must be right', 'bandwidth 1.5'],
    'bandwidth, rate with a unit': ['amounts may have units', 'meta 24'],
    'bandwidth, DEL without the limits': ['DEL takes away what is there', 'meta 26'],
    'bandwidth, a clsact qdisc of others': ['filters of others are no conflict', 'meta 27'],
    'firewall, unknown policy': ['configuration errors come before any rule', 'meta 48'],
    'firewall, unknown backend': ['a misspelt backend is refused instead of ignored', 'meta 48'],
    'sbr, first in the chain': ['DEL is fine without an interface', 'meta 49'],
    'sbr, table': ['the table is obeyed, as by newer releases of the reference', 'sbr, table'],
    'sbr, table of the old range': [
      'the table is obeyed, as by newer releases of the reference',
      'sbr, table',
    ],
    'sbr, ADD twice': ['ADD finds its own rules again', 'meta 51'],
    'tuning, ADD twice': ['the values from before the first ADD are kept', 'meta 37'],
  }),
];

/** Rows with lists of subnets, which only release 1.5 of the reference honoured. */
function subnetRows(names: readonly string[]): Record<string, readonly [reason: string, quirk: string]> {
  const explained = ['lists of subnets are obeyed, as by the reference in 1.5', 'bandwidth 1.5'] as const;
  return Object.fromEntries(names.map(name => [`bandwidth, ${name}`, explained]));
}

/** Rows in which one cause explains everything that follows: the reason and the quirk by row name. */
function diverging(
  table: TableName,
  rows: Readonly<Record<string, readonly [reason: string, quirk: string]>>,
): Difference[] {
  return Object.entries(rows).map(([name, [reason, quirk]]) => {
    return { path: /^(ADD|CHECK|DEL)/, rows: exactly(name), reason, quirk, in: table };
  });
}

function exactly(name: string): RegExp {
  return new RegExp(`^${name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`);
}
