// Which elements of the sets make up an attachment?
import type { FilterOwner } from '../../src/attach/handle.ts';
import type { Ip } from '../../src/net/ip.ts';
import { goto } from '../../src/netlink/nft/data.ts';
import type { FieldValue } from '../../src/netlink/nft/datatype.ts';
import type { Element } from '../../src/netlink/nft/element.ts';
import type { Entry, Place } from '../../src/netlink/nft/entries.ts';
import type { NftSet } from '../../src/netlink/nft/set.ts';
import type { AccessPlan } from './plan.ts';
import { INGRESS_CHAIN, SETS } from './skeleton.ts';

/** One address of an attachment, as its claim tells. */
export interface Claim {
  readonly number: number;
  readonly pod: Ip;
  /** Absent for a pod that is open to everybody. */
  readonly bridge?: string;
}

/** Everything that ADD puts into the kernel, but for the interfaces that are counted. */
export function planElements({ others, pods, ingress }: AccessPlan, owner: FilterOwner): Entry[] {
  return pods.flatMap(pod => {
    const sets = SETS[pod.family];
    const number = pods.filter(({ family }) => family === pod.family).indexOf(pod);
    const entry = (set: NftSet, key: readonly FieldValue[], data?: Element['data']): Entry => ({
      set,
      element: { key, ...(data === undefined ? {} : { data }), comment: owner.note },
    });
    return [
      entry(sets.pods, [pod]),
      entry(sets.claims, [owner.handle, number], [pod, ingress?.bridge ?? '']),
      ...others.map(other => entry(sets[other], [pod])),
      ...(ingress
        ? [
            entry(sets.home, [pod, ingress.bridge]),
            entry(sets.ingress, [pod], goto(INGRESS_CHAIN[ingress.policy])),
          ]
        : []),
      ...(ingress?.policy === 'isolated' ? [entry(sets.isolated, [pod])] : []),
    ];
  });
}

/** Where everything may be that a claim speaks of. */
export function placesOf({ number, pod, bridge }: Claim, owner: FilterOwner): Place[] {
  const sets = SETS[pod.family];
  return [
    { set: sets.claims, key: [owner.handle, number] },
    { set: sets.pods, key: [pod] },
    { set: sets.iptables, key: [pod] },
    { set: sets.firewalld, key: [pod] },
    ...(bridge === undefined
      ? []
      : [
          { set: sets.home, key: [pod, bridge] },
          { set: sets.ingress, key: [pod] },
          { set: sets.isolated, key: [pod] },
        ]),
  ];
}

/** The claim that an element of a claims map is. */
export function decodeClaim({ key, data }: Element): Claim {
  const [pod, bridge] = data as readonly [Ip, string];
  return { number: Number(key[1]), pod, ...(bridge === '' ? {} : { bridge }) };
}
