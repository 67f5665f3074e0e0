// Which pools of the whole cluster do the networks of this node allocate from?
import type { AnswerOf } from '../../answers/kinds.ts';
import { listNetworks } from '../../chain/config/load.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { inventoriesOf, loadAbouts, typesOf } from '../../cni/network-plugins.ts';
import type { CommandCall } from '../command.ts';
import { findList } from '../named-list.ts';
import { confDirOf } from '../target.ts';

/**
 * Asks the stores of one network, or of all that are configured.
 * @throws CniError 11 when a store cannot be reached, 7 when the network has no pool of a cluster
 */
export async function findPools(
  call: CommandCall,
  network: string | undefined,
): Promise<AnswerOf<'ClusterPoolList'>['items']> {
  const file = call.text('file');
  const named = file ?? network;
  const lists =
    named === undefined
      ? listNetworks(confDirOf(call)).networks.map(({ list }) => list)
      : [findList(call, named).list];
  const items: AnswerOf<'ClusterPoolList'>['items'][number][] = [];
  for (const list of lists) {
    const about = await loadAbouts(call.plugins.find, typesOf(list));
    for (const inventory of await inventoriesOf(list, about))
      items.push({ network: list.name, ...inventory });
  }
  if (named === undefined || items.length) return items;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot list pools of network "${lists[0]?.name ?? named}": its addresses are this node's own, not a cluster's`,
  );
}
