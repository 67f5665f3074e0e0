// Which devices in containers belong to attachments that GC does not keep?
//
// Such a device usually ended with its container. If the namespace still exists, its address could not be handed out again.
import type { AttachmentId } from '../../cni/attachment.ts';
import { findOwner } from '../../cni/attachment.ts';
import { visitNamespaces } from '../../ipam/holders.ts';
import { findLink, listLinks, removeLink } from '../../netlink/rtnl/link.ts';
import type { UpperKind } from '../../netlink/rtnl/upper.ts';
import type { Call, Done } from '../../plugin/define.ts';
import type { KeptAttachments } from '../../plugin/kept.ts';
import { tryAll } from '../../plugin/try-all.ts';

/** A device with the alias of an attachment, and the namespace that it is in. */
interface Found {
  readonly owner: AttachmentId;
  readonly path: string;
  readonly index: number;
  readonly name: string;
  readonly alias: string | undefined;
}

/**
 * Deletes the network's devices whose attachments GC does not keep, then does what has to wait for that. Only devices count whose
 * lower device is in this namespace: a node that runs inside this machine has attachments of its own.
 */
export async function removeStaleUppers(
  call: Call,
  kind: UpperKind,
  kept: KeptAttachments,
  then: () => Done,
): Promise<void> {
  const stale = listUppers(call.network, kind).filter(({ owner }) => !kept.has(owner));
  const problems: unknown[] = [];
  if (stale.length > 0) {
    visitNamespaces(({ path, socket }) => {
      for (const found of stale.filter(one => one.path === path)) {
        const { owner, name, index, alias } = found;
        // Another namespace may have come to the path since.
        if (findLink(socket, index)?.attrs.alias !== alias) continue;
        call.log.info(
          `Deleting interface "${name}" of stale attachment ${owner.containerId}/${owner.ifname}`,
        );
        try {
          removeLink(socket, index);
        } catch (thrown) {
          problems.push(thrown);
        }
      }
    });
  }
  await tryAll([
    ...problems.map(problem => () => {
      throw problem;
    }),
    then,
  ]);
}

function listUppers(network: string, kind: UpperKind): Found[] {
  const found: Found[] = [];
  visitNamespaces(({ path, socket, hostId }) => {
    if (hostId === undefined) return;
    for (const { index, name, kind: present, attrs } of listLinks(socket)) {
      const owner = present === kind && attrs.linkNetnsId === hostId ? findOwner(attrs.alias) : undefined;
      if (owner?.network === network) {
        found.push({ owner, path, index, name, alias: attrs.alias });
      }
    }
  });
  return found;
}
