// How are elements of several sets added or deleted together?

import type { Request } from '../codec/message.ts';
import type { NetlinkSocket } from '../socket.ts';
import type { FieldValue } from './datatype.ts';
import { addElements, deleteElements, type Element, findElements } from './element.ts';
import { renderTable } from './message.ts';
import type { NftSet } from './set.ts';

/** An element and the set that it belongs to. */
export interface Entry {
  readonly set: NftSet;
  readonly element: Element;
}

/** The set and key of an element whose value is to be looked up. */
export interface Place {
  readonly set: NftSet;
  readonly key: readonly FieldValue[];
}

/** Adds elements, grouped by set. Same as: `nft add element <family> <table> <name> { … }` for each set */
export function addEntries(entries: readonly Entry[]): Request[] {
  return bySet(entries).flatMap(({ set, members }) =>
    addElements(
      set,
      members.map(({ element }) => element),
    ),
  );
}

/** Deletes elements, grouped by set. Same as: `nft delete element <family> <table> <name> { … }` for each set */
export function deletePlaces(places: readonly Place[]): Request[] {
  return bySet(places).flatMap(({ set, members }) =>
    deleteElements(
      set,
      members.map(({ key }) => key),
    ),
  );
}

/** A set is identified by its name: several objects may describe the same set. */
function bySet<T extends { readonly set: NftSet }>(all: readonly T[]): { set: NftSet; members: T[] }[] {
  const groups = new Map<string, { set: NftSet; members: T[] }>();
  for (const one of all) {
    const name = `${renderTable(one.set.table)} ${one.set.name}`;
    const group = groups.get(name) ?? { set: one.set, members: [] };
    groups.set(name, group);
    group.members.push(one);
  }
  return [...groups.values()];
}

/** How much is added to a count and removed from it. */
export interface Tally {
  readonly come: number;
  readonly went: number;
}

/**
 * The changes of a count in the data of a map; a count of zero is deleted. Call within `commitAfterReading`, since other processes
 * count as well.
 * @param shared exists while the count is above zero
 */
export function recount(
  socket: NetlinkSocket,
  place: Place,
  { come, went }: Tally,
  shared?: Entry,
): Request[] {
  const { set, key } = place;
  const sharedPlaces = shared ? [{ set: shared.set, key: shared.element.key }] : [];
  const [counted, found] = findElements(socket, [place, ...sharedPlaces]);
  const [before = 0] = (counted?.data ?? []) as readonly number[];
  // The count may have been wiped; at least what is added now exists.
  const after = Math.max(before + come - went, come);
  const isNew = after !== before;
  return [
    ...deletePlaces(isNew && counted ? [place] : []),
    ...addEntries(isNew && after > 0 ? [{ set, element: { key, data: [after] } }] : []),
    ...addEntries(shared && after > 0 && !found ? [shared] : []),
    ...deletePlaces(after === 0 && found ? sharedPlaces : []),
  ];
}
