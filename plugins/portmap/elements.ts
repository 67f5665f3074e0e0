// Which elements of the maps make up an attachment?
import { type FilterOwner, filterOwnerOf, filterOwnerOfNote } from '../../src/attach/owner.ts';
import { type AttachmentId, findOwner } from '../../src/cni/attachment.ts';
import { defined } from '../../src/cni/json.ts';
import { type Cidr, type Ip, networkOf } from '../../src/net/ip.ts';
import type { Element, Entry, Place } from '../../src/netlink/nft/element.ts';
import { goto } from '../../src/netlink/nft/expr.ts';
import { type FieldValue, renderFields } from '../../src/netlink/nft/table.ts';
import { type FamilyPlan, type HostPort, PROTOCOLS, protocolName } from './plan.ts';
import { conditionalSets, SETS, SNAT_ALL, snatChain } from './sets.ts';

/** How the kernel objects of an attachment identify it: a short handle in keys, and a human-readable note in comments. */
export interface Owner extends FilterOwner {
  /** Absent if only the note is known, and the note does not identify the attachment. */
  readonly attachment?: AttachmentId | undefined;
}

/** Packet filters that can map ports. */
export type Backend = 'nftables' | 'iptables';

/** Which packet filter forwards, and the handle of the conditions under which it does; empty without conditions. */
export interface Way {
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

/** Which connections get an address of the host as source. */
export type Masquerading = 'none' | 'local' | 'all';

/** The options that the elements depend on. */
export interface Means {
  readonly backend: Backend;
  /** Handles of the conditions. */
  readonly conditions: Readonly<Record<4 | 6, string>>;
  readonly masquerading: Masquerading;
}

/** Handle and note of an attachment. */
export function ownerOf(attachment: AttachmentId): Owner {
  return { ...filterOwnerOf(attachment), attachment };
}

/** The owner that a comment names. */
export function ownerOfNote(note: string): Owner {
  const attachment = findOwner(note);
  // A long container id is replaced by a digest, which cannot be turned back into the id.
  const isWhole = attachment !== undefined && !attachment.containerId.startsWith('~');
  return { ...filterOwnerOfNote(note), ...(isWhole ? { attachment } : {}) };
}

/** Whether the note of an element names the owner's container, perhaps in another network or with another interface. */
export function isSameContainer(note: string | undefined, owner: Owner): boolean {
  const holder = findOwner(note);
  return holder !== undefined && holder.containerId === findOwner(owner.note)?.containerId;
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
  const entry = (place: Place, data?: Element['data']): Entry => ({
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
      ? [entry({ set: sets.snat, key: [pod.ip] }, goto(snatTarget(pod, masquerading)))]
      : []),
    ...(isOurs && masquerading === 'local'
      ? [entry({ set: sets.hairpin, key: [networkOf(pod), pod.ip] })]
      : []),
  ];
}

/** The element that marks a host port as taken. For nf_tables it is also the element that forwards the port. */
export function takenPlace({ family, protocol, port, ip, backend, condition }: Taken): Place {
  const number = PROTOCOLS[protocol];
  if (backend === 'iptables') {
    return { set: SETS[family].iptables, key: [condition, ip ?? anyAddress(family), number, port] };
  }
  const { specific, wildcard } = condition ? conditionalSets(family, condition) : SETS[family];
  return ip ? { set: specific, key: [ip, number, port] } : { set: wildcard, key: [number, port] };
}

/** A key that distinguishes two places. */
export function placeName({ set, key }: Place): string {
  return `${set.name} ${renderFields(key)}`;
}

/** All places that a claim may occupy; not every one has an element. */
export function placesOf(claim: Claim, owner: Owner): Place[] {
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

function snatTarget(pod: Cidr, masquerading: 'local' | 'all'): string {
  return masquerading === 'all' ? SNAT_ALL : snatChain(pod);
}
