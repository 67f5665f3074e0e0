// How is masquerading of an attachment started and stopped?
import type { AttachmentId } from '../cni/attachment.ts';
import { networkOf } from '../net/cidr.ts';
import { commitAfterReading } from '../netlink/nft/batch.ts';
import { findElements } from '../netlink/nft/element.ts';
import { addEntries, deletePlaces, type Entry } from '../netlink/nft/entries.ts';
import {
  changeOwned,
  elementProblem,
  findOwned,
  findOwnedProblems,
  placeOf,
  sweepOwned,
} from '../netlink/nft/owned-table.ts';
import type { NetlinkSocket, Request } from '../netlink/socket.ts';
import { confirmAll } from '../plugin/confirm.ts';
import { isStaleNote, type KeptAttachments } from '../plugin/kept.ts';
import { noteOf } from './handle.ts';
import { type FormerOwner, findFormerOwners, type RefuseLiving } from './living-owner.ts';
import type { Masqueraded } from './masq-source.ts';
import {
  LOCAL,
  PODS,
  planSkeleton,
  SETS,
  STRAYS,
  strayVerdictFor,
  verdictFor,
} from './masquerade-skeleton.ts';

/**
 * Masquerades what the addresses send beyond their subnets, in one transaction. Elements that a dead attachment left for
 * the same addresses are reassigned to this one.
 * @throws CniError 101 when one of the addresses belongs to another attachment that is alive
 */
export function ensureMasquerade(
  socket: NetlinkSocket,
  owner: AttachmentId,
  cidrs: readonly Masqueraded[],
  refuseLiving: RefuseLiving,
): void {
  ensureEntries(socket, cidrs, entriesFor(owner, cidrs), () =>
    refuseLiving(findOtherOwners(socket, owner, cidrs)),
  );
}

/** Stops what leaves the addresses' subnets without a connection, where another packet filter masquerades. */
export function ensureNoStrays(
  socket: NetlinkSocket,
  owner: AttachmentId,
  cidrs: readonly Masqueraded[],
): void {
  const wanted = entriesFor(owner, cidrs).filter(({ set }) => set !== PODS[4] && set !== PODS[6]);
  ensureEntries(socket, cidrs, wanted, () => {});
}

function ensureEntries(
  socket: NetlinkSocket,
  cidrs: readonly Masqueraded[],
  wanted: readonly Entry[],
  refuse: () => void,
): void {
  changeOwned(socket, [planSkeleton(cidrs)], () => {
    refuse();
    const found = findElements(socket, wanted.map(placeOf));
    const isWrong = (entry: Entry, i: number) => elementProblem(entry, found[i]) !== undefined;
    const stale = wanted.filter((entry, i) => found[i] && isWrong(entry, i));
    return [...deletePlaces(stale.map(placeOf)), ...addEntries(wanted.filter(isWrong))];
  });
}

/** The other attachments that own elements for the addresses. */
export function findOtherOwners(
  socket: NetlinkSocket,
  owner: AttachmentId,
  cidrs: readonly Masqueraded[],
): FormerOwner[] {
  const ips = cidrs.map(({ ip }) => ip);
  return findFormerOwners(socket, PODS, ips, noteOf(owner));
}

/**
 * Stops masquerading an attachment. Its elements carry its name, so nothing else is needed to find them, but scanning all
 * elements takes longer the more containers there are.
 * @param known its addresses; when all of their elements exist, the sets are not scanned
 */
export function removeMasquerade(
  socket: NetlinkSocket,
  owner: AttachmentId,
  known: readonly Masqueraded[] = [],
): void {
  const note = noteOf(owner);
  const places = entriesFor(owner, known).map(placeOf);
  let isKnown = places.length > 0;
  const removeKnown = (): Request[] => {
    isKnown = findOwned(socket, places, note).length === places.length;
    return isKnown ? deletePlaces(places) : [];
  };
  if (isKnown) commitAfterReading(socket, removeKnown);
  if (!isKnown) sweepOwned(socket, SETS, one => one === note);
}

/** Stops masquerading the network's attachments that GC does not keep. */
export function removeStaleMasquerade(socket: NetlinkSocket, network: string, kept: KeptAttachments): void {
  sweepOwned(socket, SETS, note => isStaleNote(note, network, kept));
}

/** @throws Error naming what is missing of the attachment's masquerading, or of the rules behind it */
export function checkMasquerade(
  socket: NetlinkSocket,
  owner: AttachmentId,
  cidrs: readonly Masqueraded[],
): void {
  confirmAll('masquerading', findOwnedProblems(socket, [planSkeleton(cidrs)], entriesFor(owner, cidrs)));
}

function entriesFor(owner: AttachmentId, cidrs: readonly Masqueraded[]): Entry[] {
  const comment = noteOf(owner);
  return cidrs.flatMap(cidr => {
    const { ip } = cidr;
    return [
      { set: LOCAL[ip.family], element: { key: [ip, networkOf(cidr)], comment } },
      { set: PODS[ip.family], element: { key: [ip], data: verdictFor(cidr), comment } },
      { set: STRAYS[ip.family], element: { key: [ip], data: strayVerdictFor(cidr), comment } },
    ];
  });
}
