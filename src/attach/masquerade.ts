// How is masquerading of an attachment started and stopped?
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
import type { KeptAttachments } from '../plugin/kept.ts';
import type { FormerOwner, RefuseLiving } from './living-owner.ts';
import { LOCAL, PODS, skeletonChanges, verdictFor } from './masquerade-skeleton.ts';

const SETS: readonly NftSet[] = [PODS[4], PODS[6], LOCAL[4], LOCAL[6]];

/** An element and the set that it belongs to. */
interface Placed {
  readonly set: NftSet;
  readonly element: Element;
}

/**
 * Masquerades what the addresses send beyond their subnets, in one transaction. Elements that a dead attachment left for
 * the same addresses are reassigned to this one.
 * @throws CniError 101 when one of the addresses belongs to another attachment that is alive
 */
export function ensureMasquerade(
  socket: NetlinkSocket,
  owner: Attachment,
  cidrs: readonly Cidr[],
  refuseLiving: RefuseLiving,
): void {
  const wanted = elementsFor(owner, cidrs);
  commitAfterReading(socket, () => {
    refuseLiving(findOtherOwners(socket, owner, cidrs));
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

/** The other attachments that own elements for the addresses. */
export function findOtherOwners(
  socket: NetlinkSocket,
  owner: Attachment,
  cidrs: readonly Cidr[],
): FormerOwner[] {
  const own = noteOf(owner);
  const places = cidrs.map(({ ip }) => ({ set: PODS[ip.family], key: [ip] }));
  const found = findElements(socket, places);
  return cidrs.flatMap(({ ip }, i) => {
    const note = found[i]?.comment;
    return note === undefined || note === own ? [] : { ip, owner: note };
  });
}

/**
 * Stops masquerading an attachment. Its elements carry its name, so nothing else is needed to find them, but scanning all
 * elements takes longer the more containers there are.
 * @param known its addresses; when all of their elements exist, the sets are not scanned
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

/** Stops masquerading the network's attachments that GC does not keep. */
export function removeStaleMasquerade(socket: NetlinkSocket, network: string, kept: KeptAttachments): void {
  removeElements(socket, comment => {
    const owner = findOwner(comment);
    return owner?.network === network && !kept.has(owner);
  });
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
