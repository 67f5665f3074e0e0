// How does traffic between pods of the cluster keep its source address, whatever masquerades on this node?
//
// The kernel asks the chains of address translation in the order of their priorities until one has decided about a connection. A chain
// before those of our plugins, of the reference's, of Docker and of iptables decides that the source stays what it is.

import { type Cidr, FAMILIES, netmaskOf, renderIp } from '../net/ip.ts';
import type { Request } from '../netlink/codec.ts';
import { addElements, deleteElements, listElements } from '../netlink/nft/element.ts';
import { commitAfterReading, type Table } from '../netlink/nft/message.ts';
import { type Skeleton, skeletonChanges, skeletonProblems } from '../netlink/nft/skeleton.ts';
import {
  addTable,
  deleteTable,
  hasTable,
  listSets,
  NF_IP_PRI_NAT_SRC,
  type NftSet,
  renderFields,
} from '../netlink/nft/table.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { WaysPlan } from './plan.ts';

/** Our table, which contains everything below. */
export const SPARE_TABLE: Table = { family: 'inet', name: 'catena_between' };

const TYPES = { 4: 'ipv4_addr', 6: 'ipv6_addr' } as const;
const PREFIXES = { 4: 'ip', 6: 'ip6' } as const;

/** The table as planned: what it consists of, and the contents of its sets. Undefined if no traffic has to be spared. */
interface SparePlan {
  readonly skeleton: Skeleton;
  readonly contents: readonly { readonly set: NftSet; readonly keys: readonly Cidr['ip'][] }[];
}

/** What is wrong with the table, human-readable. Changes nothing. */
export function spareProblems(socket: NetlinkSocket, plan: Pick<WaysPlan, 'own' | 'others'>): string[] {
  const spare = planSpare(plan);
  if (spare === undefined) return [];
  return [
    ...skeletonProblems(socket, spare.skeleton),
    ...elementChanges(socket, spare).map(({ op }) => `cannot yet ${op}`),
  ];
}

/**
 * Makes the table as planned, in one transaction; deletes it if no traffic has to be spared.
 * @returns what was changed, human-readable
 * @throws NetlinkError when the kernel refuses
 */
export function applySpare(socket: NetlinkSocket, plan: Pick<WaysPlan, 'own' | 'others'>): string[] {
  const spare = planSpare(plan);
  let changed: string[] = [];
  commitAfterReading(socket, () => {
    changed = [];
    const isThere = hasTable(socket, SPARE_TABLE);
    if (spare === undefined) {
      if (isThere) changed = [`delete table "${SPARE_TABLE.name}"`];
      return isThere ? [deleteTable(SPARE_TABLE)] : [];
    }
    const { skeleton, contents } = spare;
    const names = new Set(skeleton.sets.map(({ name }) => name));
    const isWhole =
      isThere &&
      listSets(socket, SPARE_TABLE).every(name => names.has(name)) &&
      skeletonProblems(socket, skeleton).length === 0;
    if (isWhole) {
      const changes = elementChanges(socket, spare);
      changed = changes.map(({ op }) => op);
      return changes;
    }
    changed = [`make table "${SPARE_TABLE.name}"`];
    return [
      addTable(SPARE_TABLE),
      deleteTable(SPARE_TABLE),
      ...skeletonChanges(skeleton),
      ...contents.flatMap(({ set, keys }) =>
        addElements(
          set,
          keys.map(ip => ({ key: [ip] })),
        ),
      ),
    ];
  });
  return changed;
}

function elementChanges(socket: NetlinkSocket, { contents }: SparePlan): Request[] {
  return contents.flatMap(({ set, keys }) => {
    const present = listElements(socket, set).map(({ key }) => key);
    const found = new Set(present.map(renderFields));
    const wanted = new Set(keys.map(ip => renderFields([ip])));
    const missing = keys.filter(ip => !found.has(renderFields([ip])));
    const stale = present.filter(key => !wanted.has(renderFields(key)));
    return [
      ...addElements(
        set,
        missing.map(ip => ({ key: [ip] })),
      ),
      ...deleteElements(set, stale),
    ];
  });
}

/** From own blocks to those of others: one rule for each pair of prefix lengths. A pod that reaches itself by a Service is not concerned. */
function planSpare({ own, others }: Pick<WaysPlan, 'own' | 'others'>): SparePlan | undefined {
  const parts = FAMILIES.flatMap(family => {
    const from = byPrefix(family, 'own', own);
    const to = byPrefix(family, 'others', others);
    if (from.length === 0 || to.length === 0) return [];
    const word = PREFIXES[family];
    const rules = from.flatMap(({ set: a, mask: m }) =>
      to.map(
        ({ set: b, mask: n }) =>
          `${word} saddr & ${m} @${a.name} ${word} daddr & ${n} @${b.name} snat ${word} to ${word} saddr`,
      ),
    );
    return { sets: [...from, ...to], rules };
  });
  if (parts.length === 0) return undefined;
  const contents = parts.flatMap(({ sets }) => sets.map(({ set, keys }) => ({ set, keys })));
  const base = { type: 'nat', hook: 'postrouting', priority: NF_IP_PRI_NAT_SRC - 10 } as const;
  const skeleton: Skeleton = {
    table: SPARE_TABLE,
    comment: 'catena: what pods send to pods of other nodes keeps its source',
    sets: contents.map(({ set }) => set),
    chains: [{ name: 'postrouting', base, rules: parts.flatMap(({ rules }) => rules) }],
  };
  return { skeleton, contents };
}

function byPrefix(family: 4 | 6, which: string, cidrs: readonly Cidr[]) {
  const some = cidrs.filter(({ ip }) => ip.family === family);
  return [...new Set(some.map(({ prefix }) => prefix))]
    .sort((a, b) => b - a)
    .map(prefix => {
      const those = some.filter(one => one.prefix === prefix);
      const set: NftSet = { table: SPARE_TABLE, name: `${which}${family}_${prefix}`, key: [TYPES[family]] };
      const mask = renderIp(netmaskOf({ ip: { family, value: 0n }, prefix }));
      return { set, mask, keys: those.map(({ ip }) => ip) };
    });
}
