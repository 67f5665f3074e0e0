// How does a plugin keep state in tables of its own, where fixed rules look up elements that belong to attachments?
//
// The rules are created by the first attachment and never change; an attachment only adds elements. Each element names its owner
// in its comment, so it can be deleted when nothing else is known about the attachment. A flush, or another release, is detected
// by the number of rules in each chain, and repaired by the next change.

import { Errno } from '../../sys/errno.ts';
import type { Request } from '../codec/message.ts';
import { isNetlinkError } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import { commitAfterReading } from './batch.ts';
import { renderFields } from './datatype.ts';
import { type Element, findElements, listElements } from './element.ts';
import { deletePlaces, type Entry, type Place } from './entries.ts';
import { summarizeChains } from './rule.ts';
import type { NftSet } from './set.ts';
import { isComplete, type Skeleton, skeletonChanges, skeletonProblems, tableMissing } from './skeleton.ts';

/**
 * Changes elements in one transaction, which first completes the tables that need it.
 * @param decide reads what it needs and returns the changes of elements, given the tables that were incomplete; may run several
 * times, and may throw
 * @throws NetlinkError of the first change that the kernel refused
 */
export function changeOwned(
  socket: NetlinkSocket,
  skeletons: readonly Skeleton[],
  decide: (incomplete: readonly Skeleton[]) => readonly Request[],
): void {
  const attempt = (isIncomplete: typeof isComplete) =>
    commitAfterReading(socket, () => {
      const incomplete = skeletons
        .map(skeleton => ({ skeleton, present: summarizeChains(socket, skeleton.table) }))
        .filter(({ skeleton, present }) => isIncomplete(skeleton, present));
      const changes = decide(incomplete.map(({ skeleton }) => skeleton));
      return [
        ...incomplete.flatMap(({ skeleton, present }) => skeletonChanges(skeleton, present)),
        ...changes,
      ];
    });
  try {
    attempt((skeleton, present) => !isComplete(skeleton, present));
  } catch (thrown) {
    // A set that no rule mentions is missing: it was deleted, or the skeleton is that of an older release.
    if (!isNetlinkError(thrown, Errno.ENOENT)) throw thrown;
    attempt(() => true);
  }
}

/** Elements by their owners' comments. Reads every element of the sets. */
export function listOwned(
  socket: NetlinkSocket,
  sets: readonly NftSet[],
  isWanted: (owner: string) => boolean,
): Entry[] {
  return sets.flatMap(set =>
    listElements(socket, set).flatMap(element =>
      element.comment !== undefined && isWanted(element.comment) ? { set, element } : [],
    ),
  );
}

/** The owners of elements, each once. Reads every element of the sets. */
export function listOwners(
  socket: NetlinkSocket,
  sets: readonly NftSet[],
  isWanted: (owner: string) => boolean,
): string[] {
  return [...new Set(listOwned(socket, sets, isWanted).flatMap(({ element }) => element.comment ?? []))];
}

/** The places whose elements belong to the owner. The cost does not depend on the number of other elements. */
export function findOwned(socket: NetlinkSocket, places: readonly Place[], owner: string): Place[] {
  const found = findElements(socket, places);
  return places.filter((_, i) => found[i]?.comment === owner);
}

/**
 * Elements whose keys are the owner's handle and a number, from zero without gaps: for each of the sets, in order. Asks for the
 * first of each set, then for as many more as have been found already.
 */
export function findNumbered(
  socket: NetlinkSocket,
  sets: readonly NftSet[],
  { handle, note }: { readonly handle: string; readonly note: string },
): Element[][] {
  const found = sets.map((): Element[] => []);
  let open = sets.map((set, i) => ({ set, own: found[i] ?? [] }));
  for (let count = 1; open.length; count = Math.max(...open.map(({ own }) => own.length), 1)) {
    const asked = open.flatMap(one =>
      Array.from({ length: count }, (_, i) => ({ ...one, key: [handle, one.own.length + i] })),
    );
    const answers = findElements(socket, asked);
    const ended = new Set<readonly Element[]>();
    for (const [i, { own }] of asked.entries()) {
      const element = answers[i];
      if (element?.comment !== note) ended.add(own);
      else if (!ended.has(own)) own.push(element);
    }
    open = open.filter(({ own }) => !ended.has(own));
  }
  return found;
}

/** Removes the elements of owners that are gone, in one transaction. Reads every element of the sets. */
export function sweepOwned(
  socket: NetlinkSocket,
  sets: readonly NftSet[],
  isGone: (owner: string) => boolean,
): void {
  commitAfterReading(socket, () => deletePlaces(listOwned(socket, sets, isGone).map(placeOf)));
}

/** How an element differs from the one that should be there, human-readable; undefined when it does not. */
export function elementProblem({ set, element }: Entry, found: Element | undefined): string | undefined {
  const name = `{ ${renderFields(element.key)} } of "${set.name}"`;
  if (found === undefined) return `${name} is missing`;
  if (found.comment === undefined) return `${name} has no owner`;
  if (found.comment !== element.comment) return `${name} belongs to "${found.comment}"`;
  return Bun.deepEquals(found.data, element.data, true) ? undefined : `${name} leads elsewhere`;
}

/** What is missing or different in the tables and among the elements, human-readable. */
export function findOwnedProblems(
  socket: NetlinkSocket,
  skeletons: readonly Skeleton[],
  entries: readonly Entry[],
): string[] {
  const problems = new Set(skeletons.flatMap(skeleton => skeletonProblems(socket, skeleton)));
  const left = entries.filter(({ set }) => !problems.has(tableMissing(set.table)));
  const found = findElements(socket, left.map(placeOf));
  return [...problems, ...left.flatMap((entry, i) => elementProblem(entry, found[i]) ?? [])];
}

/** The set and key of an entry. */
export function placeOf({ set, element: { key } }: Entry): Place {
  return { set, key };
}
