// Would iptables translate connections that a program with tables of its own has to decide about?
// iptables has the priority that kube-proxy and others take, too, and of equal chains the one that was made last runs first.
import type { Family } from '../../net/ip.ts';
import { NF_IP_PRI_NAT_DST, NF_IP_PRI_NAT_SRC } from '../nft/chain.ts';
import { renderTable } from '../nft/message.ts';
import { listTableNames, listTranslatingChains } from '../nft/table.ts';
import type { NetlinkSocket } from '../socket.ts';
import { hasLegacyTable } from './legacy.ts';
import { restoreMode } from './mode.ts';
import { natTable } from './nft.ts';

const PLACES = {
  destination: { hook: 'prerouting', priority: NF_IP_PRI_NAT_DST },
  source: { hook: 'postrouting', priority: NF_IP_PRI_NAT_SRC },
} as const;

/** Tables of CNI plugins: the reference's, and ours of releases that had this priority. */
const OF_CNI = /^(cni|catena)_/;

/**
 * The table of another program whose chain iptables' translation runs before, because iptables' own table does not exist
 * yet or was made later; undefined if there is none. Of two tables, the order of their handles is that of their chains. What legacy
 * iptables has already cannot be told.
 */
export function findOvertaken(
  socket: NetlinkSocket,
  family: Family,
  which: keyof typeof PLACES,
): string | undefined {
  const nat = natTable(family);
  const others = listTranslatingChains(socket, PLACES[which])
    .map(({ table }) => table)
    .filter(one => (one.family === nat.family || one.family === 'inet') && !OF_CNI.test(one.name))
    .filter(one => renderTable(one) !== renderTable(nat));
  if (others.length === 0) return undefined;
  const isLegacy = restoreMode(family) === 'legacy';
  if (isLegacy && hasLegacyTable(family, 'nat')) return undefined;
  const handles = new Map(listTableNames(socket).map(one => [renderTable(one), one.handle]));
  const own = isLegacy ? undefined : handles.get(renderTable(nat));
  const first = others.find(one => own === undefined || (handles.get(renderTable(one)) ?? 0n) < own);
  return first && renderTable(first);
}
