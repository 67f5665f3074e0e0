// Which VLANs does the container's port belong to?
import type { VlanRange } from '../../src/netlink/rtnl/bridge-vlan.ts';
import type { BridgeConf } from './config.ts';

/** The VLAN changes to make on a port. */
export interface VlanPlan {
  /** Whether the port leaves the bridge's default VLAN first. */
  readonly leavesDefault: boolean;
  /** VLANs of the port, the untagged one first. */
  readonly vlans: readonly VlanRange[];
}

/** VLAN of untagged frames when only tagged ones are requested: the default VLAN of bridges. */
const DEFAULT_VLAN = 1;

/** True when the bridge must filter VLANs; an empty `vlanTrunk` requests this too (reference behaviour). */
export function wantsFiltering({ vlan, vlanTrunk }: BridgeConf): boolean {
  return vlan !== 0 || vlanTrunk !== undefined;
}

/**
 * The VLANs of the container's port, or undefined when the configuration does not set any. The native VLAN stays untagged even if
 * the trunk names it; in the reference the order decides.
 */
export function planVlans(conf: BridgeConf): VlanPlan | undefined {
  const tagged = tagsOf(conf);
  if (conf.vlan === 0 && tagged.size === 0) return undefined;
  const native = conf.vlan || DEFAULT_VLAN;
  tagged.delete(native);
  const ids = [...tagged].sort((a, b) => a - b);
  return {
    leavesDefault: !conf.preserveDefaultVlan,
    vlans: [nativeVlan(native), ...rangesOf(ids)],
  };
}

/** The VLAN of untagged frames, in both directions. */
export function nativeVlan(id: number): VlanRange {
  return { first: id, last: id, pvid: true, untagged: true };
}

/** One string per range, ordered by number: `100 pvid untagged`, `200-210`. */
export function renderVlans(vlans: readonly VlanRange[]): string[] {
  const ordered = [...vlans].sort((a, b) => a.first - b.first);
  return ordered.map(({ first, last, pvid, untagged }) =>
    [
      first === last ? first : `${first}-${last}`,
      ...(pvid ? ['pvid'] : []),
      ...(untagged ? ['untagged'] : []),
    ].join(' '),
  );
}

function tagsOf({ vlanTrunk = [] }: BridgeConf): Set<number> {
  const ids = new Set<number>();
  for (const { id, minID, maxID } of vlanTrunk) {
    if (id !== undefined) ids.add(id);
    if (minID === undefined || maxID === undefined) continue;
    for (let one = minID; one <= maxID; one++) ids.add(one);
  }
  return ids;
}

/** Merges adjacent ids into ranges, so that a trunk of thousands is a message of a few entries. */
function rangesOf(ids: readonly number[]): VlanRange[] {
  const ranges: { first: number; last: number; pvid: boolean; untagged: boolean }[] = [];
  for (const id of ids) {
    const previous = ranges.at(-1);
    if (previous?.last === id - 1) previous.last = id;
    else ranges.push({ first: id, last: id, pvid: false, untagged: false });
  }
  return ranges;
}
