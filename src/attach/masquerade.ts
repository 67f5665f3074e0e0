// How is an attachment masqueraded, and how does that end?
import { type Attachment, findOwner, renderOwner } from '../cni/attachment.ts';
import { type Cidr, networkOf } from '../net/cidr.ts';
import { commitAfterReading } from '../netlink/nft/batch.ts';
import {
  addElements,
  deleteElements,
  type Element,
  findElements,
  listElements,
} from '../netlink/nft/element.ts';
import type { NftSet } from '../netlink/nft/set.ts';
import { COMMENT_MAX_LENGTH } from '../netlink/nft/userdata.ts';
import type { NetlinkSocket, Request } from '../netlink/socket.ts';
import { confirm } from '../plugin/confirm.ts';
import { LOCAL, PODS, skeletonChanges, verdictFor } from './masquerade-skeleton.ts';

const SETS: readonly NftSet[] = [PODS[4], PODS[6], LOCAL[4], LOCAL[6]];

/** An element and where it belongs. */
interface Placed {
  readonly set: NftSet;
  readonly element: Element;
}

/**
 * Masquerades what the addresses send beyond their subnets, in one transaction. Elements that a dead attachment left
 * under the same address become this one's.
 */
export function ensureMasquerade(socket: NetlinkSocket, owner: Attachment, cidrs: readonly Cidr[]): void {
  const wanted = elementsFor(owner, cidrs);
  commitAfterReading(socket, () => {
    const missing: Placed[] = [];
    const stale: Request[] = [];
    const present = findElements(socket, placesOf(wanted));
    for (const [i, placed] of wanted.entries()) {
      const found = present[i];
      if (found && isSame(found, placed.element)) continue;
      if (found) stale.push(...deleteElements(placed.set, [found.key]));
      missing.push(placed);
    }
    const added = missing.flatMap(({ set, element }) => addElements(set, [element]));
    return [...skeletonChanges(socket, cidrs), ...stale, ...added];
  });
}

/**
 * Ends the masquerading of an attachment. Its elements carry its name, so nothing else needs to be known; but to go
 * through all elements takes the longer, the more containers there are.
 * @param known addresses that it had: when their elements are all there, no others are looked for
 */
export function removeMasquerade(
  socket: NetlinkSocket,
  owner: Attachment,
  known: readonly Cidr[] = [],
): void {
  const note = noteOf(owner);
  const places = placesOf(elementsFor(owner, known));
  let isKnown = places.length > 0;
  const removeKnown = (): Request[] => {
    isKnown = findElements(socket, places).every(element => element?.comment === note);
    return isKnown ? places.flatMap(({ set, key }) => deleteElements(set, [key])) : [];
  };
  if (isKnown) commitAfterReading(socket, removeKnown);
  if (!isKnown) removeElements(socket, comment => comment === note);
}

/** Ends the masquerading of a network's attachments that are not valid any more. */
export function removeStaleMasquerade(
  socket: NetlinkSocket,
  network: string,
  valid: readonly Attachment[],
): void {
  const keep = new Set(valid.map(noteOf));
  removeElements(socket, comment => findOwner(comment)?.network === network && !keep.has(comment ?? ''));
}

/** @throws Error naming what is missing of the attachment's masquerading, or of the rules behind it */
export function checkMasquerade(socket: NetlinkSocket, owner: Attachment, cidrs: readonly Cidr[]): void {
  const wanted = elementsFor(owner, cidrs);
  const present = findElements(socket, placesOf(wanted));
  for (const [i, { set, element }] of wanted.entries()) {
    confirm(`masquerading: owner of an element in ${set.name}`, element.comment, present[i]?.comment);
  }
  const missing = skeletonChanges(socket, cidrs).map(({ op }) => op);
  confirm('masquerading: changes that its rules need', [], missing);
}

function elementsFor(owner: Attachment, cidrs: readonly Cidr[]): Placed[] {
  const comment = noteOf(owner);
  return cidrs.flatMap(cidr => {
    const { ip } = cidr;
    return [
      { set: LOCAL[ip.family], element: { key: [ip, networkOf(cidr)], comment } },
      { set: PODS[ip.family], element: { key: [ip], data: verdictFor(cidr), comment } },
    ];
  });
}

function placesOf(wanted: readonly Placed[]) {
  return wanted.map(({ set, element: { key } }) => ({ set, key }));
}

function removeElements(socket: NetlinkSocket, isGone: (comment: string | undefined) => boolean): void {
  commitAfterReading(socket, () =>
    SETS.flatMap(set => {
      const keys = listElements(socket, set).flatMap(({ comment, key }) => (isGone(comment) ? [key] : []));
      return keys.length ? deleteElements(set, keys) : [];
    }),
  );
}

function noteOf(owner: Attachment): string {
  return renderOwner(owner, COMMENT_MAX_LENGTH);
}

function isSame(found: Element, wanted: Element): boolean {
  return found.comment === wanted.comment && JSON.stringify(found.data) === JSON.stringify(wanted.data);
}
