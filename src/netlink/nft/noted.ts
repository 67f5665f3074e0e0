// Which elements of some tables have a comment, in any set?
import type { NetlinkSocket } from '../socket.ts';
import { type TypeNames, typeNamesOf } from './datatype.ts';
import { type Element, listElements } from './element.ts';
import { NftMsg, nftRequest, type Table } from './message.ts';
import { setMessage } from './set.ts';
import { listTableNames } from './table.ts';

/** An element with a comment, and the set that it belongs to. */
export interface NotedElement extends Element {
  readonly table: Table;
  readonly set: string;
  readonly comment: string;
}

/**
 * Every element with a comment in the selected tables, except in sets of unknown types.
 * Same as: `nft list tables`, then `nft list table <family> <name>`
 */
export function listNotedElements(
  socket: NetlinkSocket,
  isWanted: (table: Table) => boolean,
): NotedElement[] {
  return listTableNames(socket)
    .filter(isWanted)
    .flatMap(table =>
      listKeyTypes(socket, table).flatMap(({ name, key }) =>
        listElements(socket, { table, name, key }).flatMap(({ comment, ...element }) =>
          comment === undefined ? [] : { ...element, comment, table, set: name },
        ),
      ),
    );
}

function listKeyTypes(socket: NetlinkSocket, table: Table): { name: string; key: TypeNames }[] {
  const request = nftRequest(
    `list sets of table ${table.family} ${table.name}`,
    NftMsg.GETSET,
    setMessage,
    table.family,
    { table: table.name },
  );
  return socket.dump(request).flatMap(body => {
    const { name, keyType } = setMessage.decode(body).attrs;
    const key = keyType === undefined ? undefined : typeNamesOf(keyType);
    return name === undefined || key === undefined ? [] : { name, key };
  });
}
