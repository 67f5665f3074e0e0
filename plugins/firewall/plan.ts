// Which traffic is the firewall to accept, before the current state is considered?

import type { FilterOwner } from '../../src/attach/owner.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import type { Result } from '../../src/cni/result.ts';
import { findCidr, type Ip, sameIp } from '../../src/net/ip.ts';
import type { Element, Entry, Place } from '../../src/netlink/nft/element.ts';
import { goto } from '../../src/netlink/nft/expr.ts';
import type { FieldValue, NftSet } from '../../src/netlink/nft/table.ts';
import type { IngressPolicy, Other } from './config.ts';
import { BEHIND, INGRESS_CHAIN, PORTS, SETS } from './skeleton.ts';

/** What an attachment needs. */
export interface AccessPlan {
  /** Packet filters of the host that are informed as well. */
  readonly others: readonly Other[];
  /**
   * Whether the configuration names them. If so, they also get the reference's rules for policies, which apply to whole bridges.
   * Otherwise they only accept packets, and nf_tables enforces the policy of each pod.
   */
  readonly isNamed: boolean;
  /** They get the reference's rules alone. */
  readonly asReference?: boolean;
  readonly pods: readonly Ip[];
  /** How the host reaches the pod, and which peers may connect to it; absent when all may. */
  readonly ingress?: Ingress;
}

/** What a policy other than `open` needs. */
export interface Ingress {
  /** The first host interface of the result: a bridge, or the pod's own veth. */
  readonly bridge: string;
  /** The device by which the host routes to the pod, which its routed packets come from: the bridge, or its port of a VLAN. */
  readonly home: string;
  readonly policy: Exclude<IngressPolicy, 'open'>;
  /** Port of the bridge that leads to the pod, for `isolated`; absent if there is no bridge. */
  readonly port?: string;
}

/**
 * All addresses of the result and, for a policy, the first host interface in it: a bridge, or the pod's own veth.
 * @throws CniError 7 for a policy without such an interface to apply it to
 */
export function planAccess(result: Result, policy: IngressPolicy): Pick<AccessPlan, 'pods' | 'ingress'> {
  const pods: Ip[] = [];
  for (const { address } of result.ips ?? []) {
    const ip = findCidr(address)?.ip;
    if (ip && !pods.some(one => sameIp(one, ip))) pods.push(ip);
  }
  if (policy === 'open') return { pods };
  const bridge = result.interfaces?.find(({ sandbox }) => !sandbox)?.name;
  if (bridge === undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "ingressPolicy": "${policy}": no interface in "prevResult" is on the host; place this plugin ` +
        'after one that creates a bridge or a veth pair',
    );
  }
  return { pods, ingress: { bridge, home: bridge, policy } };
}

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
