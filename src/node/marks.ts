// Which elements and rules of the packet filter are about an address, a port or a handle, and whose are they?
import { renderIp } from '../net/ip.ts';
import { renderFields } from '../netlink/nft/datatype.ts';
import { listNotedElements } from '../netlink/nft/noted.ts';
import { listRules } from '../netlink/nft/rule.ts';
import { listTableNames } from '../netlink/nft/table.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../netlink/socket.ts';

/** An element or a rule, and the comment that names its owner. */
export interface Mark {
  /** Human-readable: `element 6 . 8080 of "dnat" in table inet catena_portmap`. */
  readonly what: string;
  readonly comment: string | undefined;
}

/** The names of all our tables begin like this. */
export const TABLE_PREFIX = 'catena_';

/**
 * Elements with a comment in our tables whose key has one of the values.
 * @param ip canonical text
 */
export function findElements(wanted: {
  readonly ip?: string | undefined;
  readonly port?: number | undefined;
}): Mark[] {
  return withNetfilter(socket =>
    listNotedElements(socket, ({ name }) => name.startsWith(TABLE_PREFIX)).flatMap(element => {
      const { key, set, table, comment } = element;
      const isMeant = key.some(value =>
        typeof value === 'object' ? renderIp(value) === wanted.ip : value === wanted.port,
      );
      const what = `element ${renderFields(key)} of "${set}" in table ${table.family} ${table.name}`;
      return isMeant ? [{ what, comment }] : [];
    }),
  );
}

/** Rules of any table with that handle, as `nft -a` shows them; handles are only unique in their table. */
export function findRules(handle: bigint): Mark[] {
  return withNetfilter(socket =>
    listTableNames(socket).flatMap(table => {
      const found = listRules(socket, table).filter(rule => rule.handle === handle);
      return found.map(({ chain, comment }) => ({
        what: `rule ${handle} of chain "${chain}" in table ${table.family} ${table.name}`,
        comment,
      }));
    }),
  );
}

/** None without the right to read the packet filter. */
function withNetfilter(read: (socket: NetlinkSocket) => Mark[]): Mark[] {
  const socket = new NetlinkSocket(NETLINK_NETFILTER);
  try {
    return read(socket);
  } catch {
    return [];
  } finally {
    socket.close();
  }
}
