// Which subnets does a new network get?

import { devicesOf, loadAbouts, rangesOf } from '../../cni/plugin-about.ts';
import {
  type Cidr,
  cidrsOverlap,
  findCidr,
  findIp,
  IP_BITS,
  networkOf,
  parseCidr,
  renderCidr,
  sameIp,
} from '../../net/ip.ts';
import { readHost, readHostRoutes } from '../../node/devices.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { factsFor, readNodeFor } from '../node/read.ts';

export interface Taken {
  readonly cidr: Cidr;
  /** What uses them, human-readable: `the route to 10.0.0.0/8 on "eth0"`. */
  readonly by: string;
}

/** How the containers of a network get addresses: of subnets, of a server of the LAN, or not at all. */
export type Addressing = readonly Cidr[] | 'server' | 'none';

/** Words that stand for free subnets: one of each family that the kernel has, or of one family. */
function familiesOf(word: string, ofKernel: readonly (4 | 6)[]): readonly (4 | 6)[] | undefined {
  if (word === 'auto') return ofKernel;
  if (word === 'auto4') return [4];
  return word === 'auto6' ? [6] : undefined;
}

/**
 * A subnet that nothing on the node uses: in IPv4 a /24 away from those that Kubernetes, podman, docker and home routers use, in
 * IPv6 a /64 with a random site prefix (RFC 4193).
 * @throws Error if none of the candidates is free
 */
export function suggestSubnet(family: 4 | 6, taken: readonly Taken[], random = randomSite): Cidr {
  for (const text of family === 4 ? candidates4() : Array.from({ length: 16 }, random)) {
    const subnet = parseCidr(text);
    if (!taken.some(({ cidr }) => cidrsOverlap(subnet, cidr))) return subnet;
  }
  throw new Error(`Cannot suggest a subnet of IPv${family}: the node uses them all; name one with --subnet`);
}

/**
 * What a user answered or gave as options.
 * @param words subnets, `auto`, `auto4`, `auto6`, `dhcp` or `none`
 * @param taken by what a given subnet must not overlap
 * @param ofKernel the families that the kernel has
 * @throws UsageError that says which word cannot be used, and why
 */
export function readAddressing(
  words: readonly string[],
  taken: readonly Taken[],
  mayUseDhcp: boolean,
  ofKernel: readonly (4 | 6)[],
): Addressing {
  const [alone] = words;
  if (words.length === 1 && alone === 'none') return 'none';
  if (words.length === 1 && alone === 'dhcp') {
    if (mayUseDhcp) return 'server';
    throw new UsageError(
      'Cannot use "dhcp": no DHCP server of a LAN can tell the containers of this kind of network apart',
    );
  }
  const subnets: Cidr[] = [];
  for (const word of words) {
    const families = familiesOf(word, ofKernel);
    const given = families?.map(family => suggestSubnet(family, taken)) ?? [readSubnet(word, taken)];
    for (const subnet of given) {
      const other = subnets.find(one => cidrsOverlap(one, subnet));
      if (other)
        throw new UsageError(
          `Cannot use ${renderCidr(subnet)}: it overlaps with ${renderCidr(other)}, which is also given`,
        );
      subnets.push(subnet);
    }
  }
  return subnets;
}

/** The least bits for hosts: network, gateway, one container, broadcast. */
const HOST_BITS = 2;

function readSubnet(word: string, taken: readonly Taken[]): Cidr {
  const subnet = findCidr(word);
  if (subnet === undefined) {
    throw new UsageError(
      `Cannot use ${JSON.stringify(word)} as a subnet: expected one like 10.1.0.0/24, auto, auto4, auto6, dhcp or none`,
    );
  }
  if (!sameIp(networkOf(subnet), subnet.ip)) {
    const base = renderCidr({ ip: networkOf(subnet), prefix: subnet.prefix });
    throw new UsageError(`Cannot use ${word} as a subnet: it is an address in ${base}`);
  }
  if (IP_BITS[subnet.ip.family] - subnet.prefix < HOST_BITS) {
    throw new UsageError(
      `Cannot use ${word} as a subnet: it has no address for a container beside the gateway's`,
    );
  }
  const other = taken.find(({ cidr }) => cidrsOverlap(subnet, cidr));
  if (other) {
    const free = renderCidr(suggestSubnet(subnet.ip.family, taken));
    throw new UsageError(`Cannot use ${word}: it overlaps with ${other.by}; ${free} is free`);
  }
  return subnet;
}

function* candidates4(): Generator<string> {
  for (let second = 200; second < 250; second++) {
    for (let third = 0; third < 256; third++) yield `10.${second}.${third}.0/24`;
  }
  for (let third = 255; third >= 0; third--) yield `192.168.${third}.0/24`;
}

function randomSite(): string {
  const [a = 0, b = 0, c = 0, d = 0, e = 0] = crypto.getRandomValues(new Uint8Array(5));
  const group = (high: number, low: number) => ((high << 8) | low).toString(16);
  return `fd${a.toString(16).padStart(2, '0')}:${group(b, c)}:${group(d, e)}::/64`;
}

export interface InUse {
  /** By routes, devices, lists and attachments. */
  readonly addresses: readonly Taken[];
  /** By lists only: containers of a macvlan may have addresses of the node's own LAN. */
  readonly ranges: readonly Taken[];
  /** Devices that exist, or that a configured network makes. */
  readonly devices: ReadonlySet<string>;
  /** The file of each configured network. */
  readonly networks: ReadonlyMap<string, string>;
}

/** Every host has them, so they are no reason to avoid a subnet. */
const EVERYWHERE = ['fe80::/10', 'ff00::/8', '224.0.0.0/4', '127.0.0.0/8', '::1/128'].map(parseCidr);

export async function readInUse(call: CommandCall): Promise<InUse> {
  const findAbout = await loadAbouts(call.plugins.find, call.plugins.types);
  const facts = factsFor(call);
  const { networks } = facts.networks();
  const devices = [...readHost(facts.kernel).byIndex.values()];
  const ranges = networks.flatMap(({ list }) =>
    rangesOf(list, findAbout).map(({ range: { subnet } }) => ({
      cidr: subnet,
      by: `subnet ${renderCidr(subnet)} of network "${list.name}"`,
    })),
  );
  const routes = readHostRoutes(facts.kernel).all.map(({ dst, device }) =>
    taken(dst, `the route to ${renderCidr(dst)} on "${device}"`),
  );
  const addresses = devices.flatMap(({ name, addresses: own }) =>
    own.map(text => {
      const [address = ''] = text.split('/');
      const ip = findIp(address);
      return taken(ip && { ip, prefix: IP_BITS[ip.family] }, `address ${address} of "${name}"`);
    }),
  );
  const { attachments } = await readNodeFor(call, { facts });
  const attached = attachments.flatMap(({ network, addresses: own }) =>
    own.map(address => taken(findCidr(address), `address ${address} of a container on network "${network}"`)),
  );
  const made = networks.flatMap(({ list }) => devicesOf(list, findAbout).flatMap(({ name }) => name ?? []));
  return {
    addresses: [...ranges, ...[...routes, ...addresses, ...attached].flat()],
    ranges,
    devices: new Set([...devices.map(({ name }) => name), ...made]),
    networks: new Map(networks.map(({ file, list }) => [list.name, file])),
  };
}

function taken(cidr: Cidr | undefined, by: string): Taken[] {
  if (cidr === undefined || cidr.prefix === 0) return [];
  return EVERYWHERE.some(one => cidrsOverlap(one, cidr)) ? [] : [{ cidr, by }];
}
