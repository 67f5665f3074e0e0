// Which lists, pools and lease directories do the networks of a node have?
import { type Conflist, parseFrozen } from '../chain/config/conflist.ts';
import type { LoadedNetworks } from '../chain/config/load.ts';
import type { FindAbout } from '../cni/network-plugins.ts';
import { leaseDirsOf } from '../cni/network-plugins.ts';
import { rangeUsesOf } from '../ipam/range-use.ts';
import type { RecordedAttachment } from './facts.ts';
import type { NodeAttachment, NodeNetwork, NodePool } from './model.ts';

/** The list of each network, by name: as configured, else as an attachment had it. */
export function listsOf(
  networks: LoadedNetworks['networks'],
  attachments: readonly RecordedAttachment[],
): ReadonlyMap<string, Conflist> {
  const lists = new Map(networks.map(({ list }) => [list.name, list]));
  for (const { known } of attachments) {
    if (lists.has(known.network) || known.source === undefined) continue;
    try {
      lists.set(known.network, parseFrozen(known.source));
    } catch {
      // Its pools are unknown without a list.
    }
  }
  return lists;
}

/** The networks that are configured, then those that only attachments know. */
export function networksOf(
  networks: LoadedNetworks['networks'],
  lists: ReadonlyMap<string, Conflist>,
  attachments: readonly NodeAttachment[],
  find: FindAbout,
): NodeNetwork[] {
  const counts = new Map<string, number>();
  for (const { network } of attachments) counts.set(network, (counts.get(network) ?? 0) + 1);
  const files = new Map(networks.map(({ file, list }) => [list.name, file]));
  return [...new Set([...files.keys(), ...counts.keys()])].map(name => {
    const [file, list] = [files.get(name), lists.get(name)];
    return {
      name,
      ...(file === undefined ? {} : { file }),
      ...(list === undefined ? {} : { cniVersion: list.version }),
      plugins: list?.plugins.map(({ type }) => type) ?? [],
      leaseDirs: list === undefined ? [] : leaseDirsOf(list, find),
      attachments: counts.get(name) ?? 0,
    };
  });
}

/** The ranges that the lists hand out. */
export function poolsOf(lists: ReadonlyMap<string, Conflist>, find: FindAbout): NodePool[] {
  return [...lists.values()].flatMap(list => rangeUsesOf(list, find));
}
