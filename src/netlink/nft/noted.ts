// Which elements of a set have a comment?
import type { NetlinkSocket } from '../socket.ts';
import { typeNamesOf } from './datatype.ts';
import { type Element, listElements } from './element.ts';
import type { Table } from './message.ts';

/** An element with a comment, and the set that it belongs to. */
export interface NotedElement extends Element {
  readonly table: Table;
  readonly set: string;
  readonly comment: string;
}

/**
 * Every element with a comment, if the type of the set's keys is known.
 * @param set as the kernel describes it
 * Same as: `nft list set <family> <table> <name>`
 */
export function notedElementsOf(
  socket: NetlinkSocket,
  table: Table,
  { name, keyType }: { readonly name?: string; readonly keyType?: number },
): NotedElement[] {
  const key = keyType === undefined ? undefined : typeNamesOf(keyType);
  if (name === undefined || key === undefined) return [];
  return listElements(socket, { table, name, key }).flatMap(({ comment, ...element }) =>
    comment === undefined ? [] : { ...element, comment, table, set: name },
  );
}
