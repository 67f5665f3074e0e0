// Which elements of the sets make up an attachment?
import type { FilterOwner } from '../../src/attach/handle.ts';
import { defined } from '../../src/cni/defined.ts';
import type { Ip } from '../../src/net/ip.ts';
import { goto } from '../../src/netlink/nft/data.ts';
import type { FieldValue } from '../../src/netlink/nft/datatype.ts';
import type { Element } from '../../src/netlink/nft/element.ts';
import type { Entry, Place } from '../../src/netlink/nft/entries.ts';
import type { NftSet } from '../../src/netlink/nft/set.ts';
import type { AccessPlan } from './plan.ts';
import { BEHIND, INGRESS_CHAIN, PORTS, SETS } from './skeleton.ts';

/** One address of an attachment, as its claim records it. */
export interface Claim {
  readonly number: number;
  readonly pod: Ip;
  /** The device by which the host reached it; absent for a pod that is open to all peers. */
  readonly home?: string;
}

/** Everything that ADD puts into the kernel, except the counts of interfaces. */
export function planElements({ others, pods, ingress }: AccessPlan, owner: FilterOwner): Entry[] {
  const entry = (set: NftSet, key: readonly FieldValue[], data?: Element['data']): Entry => ({
    set,
    element: { key, ...defined({ data }), comment: owner.note },
  });
  const ofPods = pods.flatMap(pod => {
    const sets = SETS[pod.family];
    const number = pods.filter(({ family }) => family === pod.family).indexOf(pod);
    return [
      entry(sets.pods, [pod]),
      entry(sets.claims, [owner.handle, number], [pod, ingress?.home ?? '']),
      ...others.map(other => entry(sets[other], [pod])),
      ...(ingress
        ? [
            entry(sets.home, [pod, ingress.home]),
            entry(sets.ingress, [pod], goto(INGRESS_CHAIN[ingress.policy])),
          ]
        : []),
      ...(ingress?.policy === 'isolated' ? [entry(sets.isolated, [pod])] : []),
    ];
  });
  return [...ofPods, ...(ingress?.port === undefined ? [] : portEntries(ingress.port, owner))];
}

/** The elements that record the bridge port of an isolated pod. */
function portEntries(port: string, { handle, note: comment }: FilterOwner): Entry[] {
  return [
    { set: PORTS, element: { key: [port], comment } },
    { set: BEHIND, element: { key: [handle], data: [port], comment } },
  ];
}

/** All places that a claim may occupy. */
export function placesOf({ number, pod, home }: Claim, owner: FilterOwner): Place[] {
  const sets = SETS[pod.family];
  return [
    { set: sets.claims, key: [owner.handle, number] },
    { set: sets.pods, key: [pod] },
    { set: sets.iptables, key: [pod] },
    { set: sets.firewalld, key: [pod] },
    ...(home === undefined
      ? []
      : [
          { set: sets.home, key: [pod, home] },
          { set: sets.ingress, key: [pod] },
          { set: sets.isolated, key: [pod] },
        ]),
  ];
}

/** Decodes an element of a claims map. */
export function decodeClaim({ key, data }: Element): Claim {
  const [pod, home] = data as readonly [Ip, string];
  return { number: Number(key[1]), pod, ...(home === '' ? {} : { home }) };
}
