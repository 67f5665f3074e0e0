// What do the reference plugins leave of masquerading with nftables, and how does it go?
import type { Attachment } from '../cni/attachment.ts';
import { commitAfterReading } from '../netlink/nft/batch.ts';
import type { Table } from '../netlink/nft/message.ts';
import { deleteRule, listRules } from '../netlink/nft/rule.ts';
import { hasTable } from '../netlink/nft/table.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { attachmentKey, networkKey } from './reference-names.ts';

const TABLE: Table = { family: 'inet', name: 'cni_plugins_masquerade' };
/** One rule for each address, with a comment that begins with the keys of network and attachment. */
const CHAIN = 'masq_checks';

/** Removes the rules that the reference made for an attachment. Table and chains stay, as after its own DEL. */
export function removeReferenceMasquerade(socket: NetlinkSocket, owner: Attachment): void {
  const key = attachmentKey(owner);
  removeRules(socket, comment => comment.startsWith(key));
}

/** Removes the rules that the reference made for attachments of the network that are not valid any more. */
export function removeStaleReferenceMasquerade(
  socket: NetlinkSocket,
  network: string,
  valid: readonly Attachment[],
): void {
  const keep = valid.map(attachmentKey);
  const own = `${networkKey(network)}-`;
  removeRules(socket, comment => comment.startsWith(own) && !keep.some(key => comment.startsWith(key)));
}

/** How many addresses of an attachment the reference masquerades. */
export function countReferenceRules(socket: NetlinkSocket, owner: Attachment): number {
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
