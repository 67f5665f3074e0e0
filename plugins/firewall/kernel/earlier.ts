// Which ports lead to pods that an earlier release isolated by address only?
import { filterOwnerOf } from '../../../src/attach/handle.ts';
import { findOwner } from '../../../src/cni/attachment.ts';
import { listElements } from '../../../src/netlink/nft/element.ts';
import type { Entry } from '../../../src/netlink/nft/entries.ts';
import { listLinks } from '../../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { portEntries } from '../elements.ts';
import { BEHIND, SETS } from '../skeleton.ts';

/**
 * The elements that these pods lack, as far as the alias of a port names the attachment: ports made by other plugins carry no
 * such alias. Reads every isolated pod.
 */
export function missingPorts(host: NetlinkSocket, nft: NetlinkSocket): Entry[] {
  const known = new Set(listElements(nft, BEHIND).map(({ comment }) => comment));
  const isolated = ([4, 6] as const)
    .flatMap(family => listElements(nft, SETS[family].isolated))
    .flatMap(({ comment }) => (comment === undefined || known.has(comment) ? [] : comment));
  if (isolated.length === 0) return [];
  const notes = new Set(isolated);
  return listLinks(host).flatMap(({ name, master, attrs }) => {
    const attachment = master ? findOwner(attrs.alias) : undefined;
    const owner = attachment && filterOwnerOf(attachment);
    return owner && notes.has(owner.note) ? portEntries(name, owner) : [];
  });
}
