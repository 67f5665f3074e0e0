// Which elements of the maps make up an attachment?
import { type FilterOwner, filterOwnerOf } from '../../src/attach/handle.ts';
import { type Attachment, findOwner } from '../../src/cni/attachment.ts';
import { type Cidr, networkOf } from '../../src/net/cidr.ts';
import type { Ip } from '../../src/net/ip.ts';
import { goto } from '../../src/netlink/nft/data.ts';
import type { FieldValue } from '../../src/netlink/nft/datatype.ts';
import type { Element } from '../../src/netlink/nft/element.ts';
import type { NftSet } from '../../src/netlink/nft/set.ts';
import { type FamilyPlan, type HostPort, PROTOCOLS, type Protocol } from './plan.ts';
import { SETS, SNAT_ALL, snatChain } from './skeleton.ts';

/** An element and where it is. */
export interface Entry {
  readonly set: NftSet;
  readonly element: Element;
}

/** Where an element is; its value and owner are to be looked up. */
export interface Place {
  readonly set: NftSet;
  readonly key: readonly FieldValue[];
}

/** What the kernel knows an attachment by: a short handle in keys, and a note for people in comments. */
export type Owner = FilterOwner;

/** One host port of an attachment, as its claim tells. */
export interface Claim extends HostPort {
  readonly family: 4 | 6;
  readonly number: number;
  readonly subnet: Ip;
  readonly pod: Ip;
}

/** Which connections get the host as source. */
export type Masquerading = 'none' | 'local' | 'all';

/** Handle and note of an attachment. */
export function ownerOf(attachment: Attachment): Owner {
  return filterOwnerOf(attachment);
}

/** Whether the note of an element names the owner's container, perhaps in another network or by another interface. */
export function isSameContainer(note: string | undefined, owner: Owner): boolean {
  const holder = findOwner(note);
  return holder !== undefined && holder.containerId === findOwner(owner.note)?.containerId;
}

/** Everything that ADD puts into the kernel for one IP version, but for the addresses that are counted. */
export function planElements(
  { family, pod, forwards }: FamilyPlan,
  owner: Owner,
  masquerading: Masquerading,
): Entry[] {
  const sets = SETS[family];
  const subnet = networkOf(pod);
  const entry = (set: NftSet, key: readonly FieldValue[], data?: Element['data']): Entry => ({
    set,
    element: { key, ...(data === undefined ? {} : { data }), comment: owner.note },
  });
  return [
    ...forwards.map(forward => {
      const place = forwardPlace(family, forward);
      return entry(place.set, place.key, [pod.ip, forward.containerPort]);
    }),
    ...forwards.map(({ protocol, port, ip }, number) =>
      entry(
        sets.claims,
        [owner.handle, number],
        [ip ?? { family, value: 0n }, PROTOCOLS[protocol], port, subnet, pod.ip],
      ),
    ),
    entry(sets.pods, [pod.ip], [owner.handle]),
    ...(masquerading === 'none' ? [] : [entry(sets.snat, [pod.ip], goto(snatTarget(pod, masquerading)))]),
    ...(masquerading === 'local' ? [entry(sets.hairpin, [subnet, pod.ip])] : []),
  ];
}

/** Where the map that forwards a host port has it. */
export function forwardPlace(family: 4 | 6, { protocol, port, ip }: HostPort): Place {
  const { specific, wildcard } = SETS[family];
  const number = PROTOCOLS[protocol];
  return ip ? { set: specific, key: [ip, number, port] } : { set: wildcard, key: [number, port] };
}

/** Where everything is that a claim speaks of; not all of it need be there. */
export function placesOf({ family, subnet, pod, ...claim }: Claim, owner: Owner): Place[] {
  const sets = SETS[family];
  return [
    forwardPlace(family, claim),
    { set: sets.claims, key: [owner.handle, claim.number] },
    { set: sets.pods, key: [pod] },
    { set: sets.snat, key: [pod] },
    { set: sets.hairpin, key: [subnet, pod] },
  ];
}

/** The claim that an element of the claims map is. */
export function decodeClaim(family: 4 | 6, { key, data }: Element): Claim {
  const [ip, protocol, port, subnet, pod] = data as readonly [Ip, number, number, Ip, Ip];
  return {
    family,
    number: Number(key[1]),
    protocol: protocolName(protocol),
    port,
    ...(ip.value === 0n ? {} : { ip }),
    subnet,
    pod,
  };
}

function snatTarget(pod: Cidr, masquerading: 'local' | 'all'): string {
  return masquerading === 'all' ? SNAT_ALL : snatChain(pod);
}

function protocolName(number: number): Protocol {
  const names = Object.keys(PROTOCOLS) as Protocol[];
  return names.find(name => PROTOCOLS[name] === number) ?? 'tcp';
}
