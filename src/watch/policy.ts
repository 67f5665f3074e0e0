// What may the daemon do about the attachments of a network that others have damaged?
import { listNetworks } from '../chain/config/load.ts';
import { isObject, memberOf, tryParse } from '../cni/json.ts';
import type { WatchedAttachment } from './attachments.ts';

/** `observe`: damage is reported. `repair`: it is also repaired. `off`: the attachments of the network are not looked at. */
export const POLICIES = ['observe', 'repair', 'off'] as const;
export type Policy = (typeof POLICIES)[number];

/** The policy that a configuration names: `{"catena": {"watch": "repair"}}` among the keys of the list. */
export function policyIn(source: string | undefined): Policy | undefined {
  const list = source === undefined ? undefined : tryParse(source);
  const own = isObject(list) ? memberOf(list, 'catena') : undefined;
  const named = isObject(own) ? memberOf(own, 'watch') : undefined;
  return POLICIES.find(one => one === named);
}

/**
 * The policies of the networks that are configured now. They apply to attachments made before, too.
 * @returns an entry for each network, undefined if its list names no policy
 */
export function readPolicies(confDir: string): ReadonlyMap<string, Policy | undefined> {
  try {
    return new Map(listNetworks(confDir).networks.map(({ list }) => [list.name, policyIn(list.source)]));
  } catch {
    // The directory cannot be read now; then what the attachments were made with has to be enough.
    return new Map();
  }
}

/**
 * The policy for an attachment: the list of today decides; without one, that of the ADD. For a network of the delegate runner that names
 * none, the list of the runner does.
 */
export function policyOf(
  { id, known, pod }: WatchedAttachment,
  policies: ReadonlyMap<string, Policy | undefined>,
  fallback: Policy,
): Policy {
  const named = (network: string, source: string | undefined) =>
    policies.has(network) ? policies.get(network) : policyIn(source);
  return named(id.network, known.source) ?? (pod && named(pod.id.network, pod.source)) ?? fallback;
}
