// Which iptables chain holds the ports of an attachment?
import type { AttachmentId } from '../../../src/cni/attachment.ts';
import { listLegacyNat, natTable } from '../../../src/netlink/iptables/nat.ts';
import { type Entry, findElement, findElements } from '../../../src/netlink/nft/element.ts';
import { hasChain } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Means, Owner } from '../elements.ts';
import { type ChainOwner, chainKey, dnatChain, soleOwner } from '../reference-names.ts';
import { CHAINS } from '../sets.ts';

/**
 * The element by which an attachment takes a chain: the one that the reference would use, or one of its own if another interface
 * of the container already has that.
 */
export function chainEntriesOf(
  socket: NetlinkSocket,
  { owner, means }: { readonly owner: Owner; readonly means: Means },
  outdated: readonly Owner[],
): Entry[] {
  const { attachment, handle, note } = owner;
  if (means.backend !== 'iptables' || attachment === undefined) return [];
  const holder = findElement(socket, CHAINS, [chainKey(attachment)]);
  const isFree = holder === undefined || outdated.some(one => one.note === holder.comment);
  const key = [chainKey(isFree ? attachment : soleOwner(attachment))];
  return [{ set: CHAINS, element: { key, data: [handle], comment: note } }];
}

/** What the chain of an attachment with iptables rules is named after. */
export function chainOwnerOf(socket: NetlinkSocket, { note }: Owner, attachment: AttachmentId): ChainOwner {
  const sole = soleOwner(attachment);
  return findElement(socket, CHAINS, [chainKey(sole)])?.comment === note ? sole : attachment;
}

/** The chains that are deleted with an attachment: its own one, and the container's unless another interface has taken it. */
export function chainsOf(socket: NetlinkSocket, { attachment, note }: Owner): ChainOwner[] {
  if (attachment === undefined) return [];
  const [shared, sole] = [attachment, soleOwner(attachment)];
  const places = [shared, sole].map(one => ({ set: CHAINS, key: [chainKey(one)] }));
  const [holder, own] = findElements(socket, places);
  const isShared = holder === undefined || holder.comment === note;
  return [...(isShared ? [shared] : []), ...(own?.comment === note ? [sole] : [])];
}

/** Whether iptables, in nf_tables or legacy, has a chain of the attachment. */
export function isChainThere(socket: NetlinkSocket, family: 4 | 6, attachment: AttachmentId): boolean {
  const chains = [attachment, soleOwner(attachment)].map(dnatChain);
  if (chains.some(chain => hasChain(socket, natTable(family), chain))) return true;
  return listLegacyNat(family).some(({ chain }) => chains.includes(chain));
}
