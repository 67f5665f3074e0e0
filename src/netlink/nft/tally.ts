// How many attachments need something that they share?
import type { NetlinkSocket, Request } from '../socket.ts';
import { findElements } from './element.ts';
import { addEntries, deletePlaces, type Entry, type Place } from './entries.ts';

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
