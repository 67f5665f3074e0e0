// How are an attachment's devices in the container deleted, and what waits for that?
import { renderOwner } from '../../cni/attachment.ts';
import { ALIAS_MAX_BYTES, type Link, listLinks } from '../../netlink/rtnl/link.ts';
import type { Call, Done } from '../../plugin/define.ts';
import { deleteInContainer } from '../../plugin/delete-devices.ts';
import { interimName } from '../../plugin/first-names.ts';
import { tryAll } from '../../plugin/try-all.ts';
import { attachmentOf } from '../owner.ts';

/**
 * Deletes the attachment's devices if the namespace still exists, then does what has to wait until they are gone, such as releasing
 * the address: the interface, and further devices of that kind with the attachment as their alias. A device of another kind
 * under the interface's name is not ours, and is kept.
 */
export async function removeDevices(call: Call, kind: string, then: () => Done): Promise<void> {
  const own = findOwn(call, kind).map(({ index }) => index);
  await tryAll([() => (own.length ? deleteInContainer(call, own) : undefined), then]);
}

function findOwn(call: Call, kind: string): Link[] {
  if (!call.findContainerNetns()) return [];
  const { ifname } = call.env;
  const owner = attachmentOf(call);
  const own = renderOwner(owner, ALIAS_MAX_BYTES);
  // An ADD that was killed may have left one without its alias.
  const interim = interimName(owner);
  const found = listLinks(call.container).filter(({ name, kind: present, attrs }) => {
    if (present === kind) return name === ifname || name === interim || attrs.alias === own;
    if (name === ifname) {
      call.log.warn(
        `Cannot delete "${name}": it is of kind "${present}", not the ${kind} that this plugin created`,
      );
    }
    return false;
  });
  // Without our mark, it may be of another container that came to the path after the namespace was examined.
  const isMarked = ({ name, attrs }: Link) => name === interim || attrs.alias === own;
  return found.every(isMarked) || call.findContainerNetns(true) ? found : [];
}
