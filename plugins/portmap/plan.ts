// Which ports are to be forwarded where, before the current state is considered?

import { type FilterOwner, filterOwnerOf, filterOwnerOfNote } from '../../src/attach/owner.ts';
import { type AttachmentId, findOwner, isSameContainer } from '../../src/cni/attachment.ts';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import { ipsFor, type Result } from '../../src/cni/result.ts';
import type { PortMapping } from '../../src/cni/schemas.ts';
import { type Cidr, FAMILIES, findCidr, findIp, type Ip, networkOf, renderIp } from '../../src/net/ip.ts';
import type { Element, ElementPlace, Entry } from '../../src/netlink/nft/element.ts';
import { goto } from '../../src/netlink/nft/expr.ts';
import { type FieldValue, renderFields } from '../../src/netlink/nft/table.ts';
import { conditionalSets, SETS, SNAT_ALL, snatChain } from './sets.ts';

/** Protocols whose ports can be mapped, with their numbers (netinet/in.h, IPPROTO_*). */
export const PROTOCOLS = { tcp: 6, udp: 17, sctp: 132 } as const;

/** About as much as one transaction carries in a second. A kernel map numbers mappings with 16 bits in any case. */
export const MOST_MAPPINGS = 8192;

export type Protocol = keyof typeof PROTOCOLS;

/** Name of a protocol by its number; undefined for one whose ports cannot be mapped. */
export function protocolName(number: number | undefined): Protocol | undefined {
  return (Object.keys(PROTOCOLS) as Protocol[]).find(name => PROTOCOLS[name] === number);
}

export interface HostPort {
  readonly protocol: Protocol;
  readonly port: number;
  /** The one host address it is taken on; absent for all addresses. */
  readonly ip?: Ip;
}

export interface Forward extends HostPort {
  readonly containerPort: number;
}

/** All forwards of one IP version of an attachment. */
export interface FamilyPlan {
  readonly family: 4 | 6;
  /** The pod's address with the prefix length of its subnet. */
  readonly pod: Cidr;
  readonly forwards: readonly Forward[];
}

/**
 * Combines mappings and addresses: a mapping applies to each family that the pod has, unless its `hostIP` belongs to one family.
 * Families without an address or a mapping are left out.
 * @throws CniError 7 for mappings that cannot work
 */
export function planForwards(
  mappings: readonly PortMapping[],
  prevResult: Result,
  ifname: string,
): FamilyPlan[] {
  refuseTooMany(mappings);
  const forwards = mappings.map(parseMapping);
  return FAMILIES.flatMap(family => {
    const pod = findPodAddress(prevResult, ifname, family);
    const own = forwards
      .filter(it => it.families.includes(family) && !isLoopback6(it.forward))
      .map(({ forward }) => forward);
    return pod === undefined || own.length === 0 ? [] : { family, pod, forwards: withoutRepeats(own) };
  });
}

/**
 * What is wrong with mappings that lead to no pod, human-readable: a runtime passes them to every network of a container.
 * @param snat whether connections from the host's loopback are masqueraded
 */
export function findIdle(
  mappings: readonly PortMapping[],
  prevResult: Result,
  ifname: string,
  snat: boolean,
): string[] {
  const has = (family: 4 | 6) => findPodAddress(prevResult, ifname, family) !== undefined;
  if (!has(4) && !has(6)) return [];
  return mappings.map(parseMapping).flatMap(({ forward, families }) => {
    const why = isLoopback6(forward)
      ? 'the kernel routes nothing from ::1 to a pod; 127.0.0.1 and other addresses work'
      : !families.some(has)
        ? `the pod has no IPv${families.join(' or IPv')} address`
        : isLoopback4(forward) && !snat
          ? 'answers to a loopback address leave no pod without "snat": true'
          : undefined;
    return why === undefined ? [] : `Host port ${renderHostPort(forward)} is not forwarded: ${why}`;
  });
}

function isLoopback4({ ip }: HostPort): boolean {
  return ip?.family === 4 && ip.value >> 24n === 127n;
}

function isLoopback6({ ip }: HostPort): boolean {
  return ip?.family === 6 && ip.value === 1n;
}

/** The pod addresses that mappings forward to, as far as the result names them. */
export function podAddressesOf(prevResult: Result | undefined, ifname: string): Ip[] {
  return FAMILIES.flatMap(family => findPodAddress(prevResult ?? {}, ifname, family)?.ip ?? []);
}

/** `8080/tcp`, preceded by the address if there is one. */
export function renderHostPort({ protocol, port, ip }: HostPort): string {
  const address = ip === undefined ? '' : ip.family === 4 ? `${renderIp(ip)}:` : `[${renderIp(ip)}]:`;
  return `${address}${port}/${protocol}`;
}

function parseMapping(mapping: PortMapping): { forward: Forward; families: readonly (4 | 6)[] } {
  const protocol = (mapping.protocol || 'tcp').toLowerCase();
  if (!isProtocol(protocol)) {
    const known = Object.keys(PROTOCOLS).join(', ');
    throw invalid(mapping, `"protocol" must be one of ${known}, found "${mapping.protocol}"`);
  }
  const { hostPort: port, containerPort, hostIP } = mapping;
  const forward = { protocol, port, containerPort };
  if (!hostIP) return { forward, families: [4, 6] };
  const ip = findIp(hostIP);
  if (ip === undefined) throw invalid(mapping, `"hostIP" must be an IP address, found "${hostIP}"`);
  // 0.0.0.0 and :: stand for every address of their family.
  return { forward: ip.value === 0n ? forward : { ...forward, ip }, families: [ip.family] };
}

/** The first address that may belong to this interface. */
function findPodAddress(result: Result, ifname: string, family: 4 | 6): Cidr | undefined {
  const cidrs = ipsFor(result, ifname).map(({ address }) => findCidr(address));
  return cidrs.find(cidr => cidr?.ip.family === family);
}

/** @throws CniError 7 */
function refuseTooMany(mappings: readonly PortMapping[]): void {
  if (mappings.length <= MOST_MAPPINGS) return;
  throw invalidConfig(
    `Cannot map ${mappings.length} host ports: one attachment has at most ${MOST_MAPPINGS} mappings`,
    { details: 'for more ports, give the pod an address that clients can reach directly' },
  );
}

/** Drops repeated mappings; two different mappings of one host port are an error. */
function withoutRepeats(forwards: readonly Forward[]): Forward[] {
  const kept = new Map<string, Forward>();
  for (const forward of forwards) {
    const key = renderHostPort(forward);
    const earlier = kept.get(key);
    if (earlier === undefined) kept.set(key, forward);
    else if (earlier.containerPort !== forward.containerPort) {
      throw invalidConfig(
        `Cannot map host port ${key} to container ports ` +
          `${earlier.containerPort} and ${forward.containerPort}: a host port can lead to one container port only`,
      );
    }
  }
  return [...kept.values()];
}

function isProtocol(text: string): text is Protocol {
  return Object.hasOwn(PROTOCOLS, text);
}

function invalid(mapping: PortMapping, problem: string): CniError {
  return invalidConfig(`Cannot map host port ${mapping.hostPort}: ${problem}`);
}

/** How the kernel objects of an attachment identify it: a short handle in keys, and a human-readable note in comments. */
export interface Owner extends FilterOwner {
  /** Absent if only the note is known, and the note does not identify the attachment. */
  readonly attachment?: AttachmentId | undefined;
}

/** Packet filters that can map ports. */
export type Backend = 'nftables' | 'iptables';

/** Which packet filter forwards, and the handle of the conditions under which it does; empty without conditions. */
interface Way {
  readonly backend: Backend;
  readonly condition: string;
}

/** A host port together with everything that decides whether it conflicts with another. */
export interface Taken extends HostPort, Way {
  readonly family: 4 | 6;
}

/** One host port of an attachment, as its claim records it. */
export interface Claim extends Taken {
  readonly number: number;
  readonly subnet: Ip;
  readonly pod: Ip;
}

export interface Means {
  readonly backend: Backend;
  /** Handles of the conditions. */
  readonly conditions: Readonly<Record<4 | 6, string>>;
  /** Which connections get an address of the host as source. */
  readonly masquerading: 'none' | 'local' | 'all';
}

export function ownerOf(attachment: AttachmentId): Owner {
  return { ...filterOwnerOf(attachment), attachment };
}

export function ownerOfNote(note: string): Owner {
  const attachment = findOwner(note);
  // A long container id is replaced by a digest, which cannot be turned back into the id.
  const isWhole = attachment !== undefined && !attachment.containerId.startsWith('~');
  return { ...filterOwnerOfNote(note), ...(isWhole ? { attachment } : {}) };
}

/** Whether the note of an element names the owner's container, perhaps in another network or with another interface. */
export function isNoteOfContainer(note: string | undefined, owner: Owner): boolean {
  const [holder, own] = [findOwner(note), findOwner(owner.note)];
  return holder !== undefined && own !== undefined && isSameContainer(holder.containerId, own.containerId);
}

/** The host ports of one IP version, numbered. */
export function planClaims({ family, pod, forwards }: FamilyPlan, means: Means): Claim[] {
  const { backend } = means;
  const way = { backend, condition: means.conditions[family] };
  const subnet = networkOf(pod);
  return forwards.map(({ protocol, port, ip }, number) => ({
    family,
    protocol,
    port,
    ...way,
    number,
    subnet,
    pod: pod.ip,
    ...defined({ ip }),
  }));
}

/** Everything that ADD puts into the kernel for one IP version, except the counts. */
export function planElements(plan: FamilyPlan, owner: Owner, means: Means): Entry[] {
  const { family, pod, forwards } = plan;
  const sets = SETS[family];
  const claims = planClaims(plan, means);
  const entry = (place: ElementPlace, data?: Element['data']): Entry => ({
    set: place.set,
    element: { key: place.key, ...defined({ data }), comment: owner.note },
  });
  const { backend, masquerading } = means;
  const condition = means.conditions[family];
  const isOurs = backend === 'nftables';
  return [
    ...claims.map((claim, i) =>
      entry(takenPlace(claim), isOurs ? [pod.ip, forwards[i]?.containerPort ?? 0] : undefined),
    ),
    ...claims.map(claim => entry({ set: sets.claims, key: [owner.handle, claim.number] }, claimData(claim))),
    ...(isOurs && condition === ''
      ? []
      : [entry({ set: sets.means, key: [owner.handle] }, [backend, condition])]),
    entry({ set: sets.pods, key: [pod.ip] }, [owner.handle]),
    ...(isOurs && masquerading !== 'none'
      ? [entry({ set: sets.snat, key: [pod.ip] }, goto(masquerading === 'all' ? SNAT_ALL : snatChain(pod)))]
      : []),
    ...(isOurs && masquerading === 'local'
      ? [entry({ set: sets.hairpin, key: [networkOf(pod), pod.ip] })]
      : []),
  ];
}

/** The element that marks a host port as taken. For nf_tables it is also the element that forwards the port. */
export function takenPlace({ family, protocol, port, ip, backend, condition }: Taken): ElementPlace {
  const number = PROTOCOLS[protocol];
  if (backend === 'iptables') {
    return { set: SETS[family].iptables, key: [condition, ip ?? anyAddress(family), number, port] };
  }
  const { specific, wildcard } = condition ? conditionalSets(family, condition) : SETS[family];
  return ip ? { set: specific, key: [ip, number, port] } : { set: wildcard, key: [number, port] };
}

export function placeName({ set, key }: ElementPlace): string {
  return `${set.name} ${renderFields(key)}`;
}

/** All places that a claim may occupy; not every one has an element. */
export function placesOf(claim: Claim, owner: Owner): ElementPlace[] {
  const { family, subnet, pod } = claim;
  const sets = SETS[family];
  return [
    takenPlace(claim),
    { set: sets.claims, key: [owner.handle, claim.number] },
    { set: sets.successors, key: [owner.handle, claim.number] },
    { set: sets.means, key: [owner.handle] },
    { set: sets.pods, key: [pod] },
    { set: sets.snat, key: [pod] },
    { set: sets.hairpin, key: [subnet, pod] },
  ];
}

/** Decodes an element of the claims map. `way` comes from the attachment's element in the map of means. */
export function decodeClaim(family: 4 | 6, { key, data }: Element, way: Way): Claim {
  const [ip, protocol, port, subnet, pod] = data as readonly [Ip, number, number, Ip, Ip];
  return {
    family,
    ...way,
    number: Number(key[1]),
    protocol: protocolName(protocol) ?? 'tcp',
    port,
    ...(ip.value === 0n ? {} : { ip }),
    subnet,
    pod,
  };
}

/** Decodes an element of the map of means; without one it is nf_tables without conditions. */
export function decodeWay(element: Element | undefined): Way {
  const [backend, condition = ''] = (element?.data ?? []) as readonly string[];
  return { backend: backend === 'iptables' ? backend : 'nftables', condition };
}

/** The host address of a claim, which is 0.0.0.0 or :: for all addresses. */
export function claimIp({ family, ip }: Claim): Ip {
  return ip ?? anyAddress(family);
}

function claimData(claim: Claim): readonly FieldValue[] {
  const { protocol, port, subnet, pod } = claim;
  return [claimIp(claim), PROTOCOLS[protocol], port, subnet, pod];
}

function anyAddress(family: 4 | 6): Ip {
  return { family, value: 0n };
}
