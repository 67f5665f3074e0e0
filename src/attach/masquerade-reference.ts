// What do the reference plugins leave behind of nftables masquerading, and how is it removed?
import type { AttachmentId } from '../cni/attachment.ts';
import { commitAfterReading, type Table } from '../netlink/nft/message.ts';
import { deleteRule, hasTable, listRules } from '../netlink/nft/table.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { KeptAttachments } from '../plugin/kept.ts';

const TABLE: Table = { family: 'inet', name: 'cni_plugins_masquerade' };
/** One rule per address, with a comment that starts with the keys of network and attachment. */
const CHAIN = 'masq_checks';

/** Removes the rules that the reference made for an attachment. Table and chains remain, as after the reference's DEL. */
export function removeReferenceMasquerade(socket: NetlinkSocket, owner: AttachmentId): void {
  const key = attachmentKey(owner);
  removeRules(socket, comment => comment.startsWith(key));
}

/** Removes the rules that the reference made for attachments of the network that GC does not keep. */
export function removeStaleReferenceMasquerade(
  socket: NetlinkSocket,
  network: string,
  kept: KeptAttachments,
): void {
  const own = `${networkKey(network)}-`;
  removeRules(
    socket,
    comment => comment.startsWith(own) && !kept.some(one => comment.startsWith(attachmentKey(one))),
  );
}

/** Number of addresses of an attachment that the reference masquerades. */
export function countReferenceRules(socket: NetlinkSocket, owner: AttachmentId): number {
  const key = attachmentKey(owner);
  return findRules(socket, comment => comment.startsWith(key)).length;
}

function removeRules(socket: NetlinkSocket, isGone: (comment: string) => boolean): void {
  if (!hasTable(socket, TABLE)) return;
  commitAfterReading(socket, () =>
    findRules(socket, isGone).map(({ handle }) => deleteRule(TABLE, CHAIN, handle)),
  );
}

function findRules(socket: NetlinkSocket, isWanted: (comment: string) => boolean) {
  return listRules(socket, TABLE, CHAIN).filter(({ comment }) => comment !== undefined && isWanted(comment));
}

/** The iptables chain of a container on a network. */
export function attachmentChain({
  network,
  containerId,
}: Pick<AttachmentId, 'network' | 'containerId'>): string {
  return `CNI-${hash(network + containerId).slice(0, 24)}`;
}

/** The prefix of the comment of every nftables rule of a network. */
export function networkKey(network: string): string {
  return hash(network).slice(0, 16);
}

/** The prefix of the comment of every nftables rule of an attachment. */
export function attachmentKey({ network, containerId, ifname }: AttachmentId): string {
  return `${networkKey(network)}-${hash(`${ifname}:${containerId}`).slice(0, 16)}`;
}

function hash(text: string): string {
  return new Bun.CryptoHasher('sha512').update(text).digest('hex');
}
