// How are an attachment's devices in the container deleted, and what waits for that?
import { renderOwner } from '../../cni/attachment.ts';
import { ALIAS_MAX_BYTES, type Link, listLinks } from '../../netlink/rtnl/link.ts';
import type { Call, Done } from '../../plugin/define.ts';
import { deleteInContainer } from '../../plugin/delete-devices.ts';
import { interimName } from '../../plugin/first-names.ts';
import { isReported } from '../../plugin/netns-owner.ts';
import { tryAll } from '../../plugin/try-all.ts';
import { attachmentOf } from '../owner.ts';

/**
 * Deletes the attachment's devices if the namespace still exists, then does what has to wait until they are gone, such as releasing
 * the address: the interface, and further devices of that kind with the attachment as their alias. A device of another kind
 * under the interface's name is not ours, and is kept. A container may have taken name and alias off: then it is the one that
 * ADD reported.
 * @param kinds of devices that the plugin makes
 */
export async function removeDevices(call: Call, kinds: string | string[], then: () => Done): Promise<void> {
  const own = findOwn(call, [kinds].flat()).map(({ index }) => index);
  await tryAll([() => (own.length ? deleteInContainer(call, own) : undefined), then]);
}

function findOwn(call: Call, kinds: readonly string[]): Link[] {
  if (!call.findContainerNetns()) return [];
  const owner = attachmentOf(call);
  const own = renderOwner(owner, ALIAS_MAX_BYTES);
  // An ADD that was killed may have left one without its alias.
  const interim = interimName(owner);
  const isMarked = ({ name, attrs }: Link) => name === interim || attrs.alias === own;
  const links = listLinks(call.container);
  const candidates = links.filter(({ kind }) => kinds.includes(kind));
  const named = candidates.filter(link => isMarked(link) || link.name === owner.ifname);
  const { container, prevResult } = call;
  const hidden = candidates.filter(
    link => !named.includes(link) && isReported({ owner, prevResult, container }, link),
  );
  const found = [...named, ...hidden];
  for (const { name, kind } of links) {
    if (name !== owner.ifname || kinds.includes(kind)) continue;
    call.log.warn(
      `Cannot delete "${name}": it is of kind "${kind}", not the ${kinds.join(' or ')} that this plugin created`,
    );
  }
  // Without our mark, it may be of another container that came to the path after the namespace was examined.
  return found.every(isMarked) || call.findContainerNetns(true) ? found : [];
}
