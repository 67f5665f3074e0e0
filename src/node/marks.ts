// Which elements and rules of the packet filter are about an address, a port or a handle, and whose are they?
import { renderIp } from '../net/ip.ts';
import { renderFields } from '../netlink/nft/datatype.ts';
import type { Tables } from '../netlink/tables.ts';

/** An element or a rule, and the comment that names its owner. */
export interface Mark {
  /** Human-readable: `element 6 . 8080 of "dnat" in table inet catena_portmap`. */
  readonly what: string;
  readonly comment: string | undefined;
}

/**
 * Elements with a comment in our tables whose key has one of the values, and rules of any table with the handle, as `nft -a` shows
 * it: handles are only unique in their table. None without the right to read the packet filter.
 * @param ip canonical text
 */
export function findMarks(
  tables: Tables,
  wanted: {
    readonly ip?: string | undefined;
    readonly port?: number | undefined;
    readonly handle?: bigint | undefined;
  },
): Mark[] {
  const { ip, port, handle } = wanted;
  try {
    const elements = ip === undefined && port === undefined ? [] : tables.ownElements;
    const rules = handle === undefined ? [] : tables.nftRules.filter(({ attrs }) => attrs.handle === handle);
    return [
      ...elements
        .filter(({ key }) => key.some(one => (typeof one === 'object' ? renderIp(one) === ip : one === port)))
        .map(({ key, set, table, comment }) => ({
          what: `element ${renderFields(key)} of "${set}" in table ${table.family} ${table.name}`,
          comment,
        })),
      ...rules.map(({ table, attrs: { chain, comment } }) => ({
        what: `rule ${handle} of chain "${chain}" in table ${table.family} ${table.name}`,
        comment,
      })),
    ];
  } catch {
    return [];
  }
}
