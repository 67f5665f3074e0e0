// How is a device of the container deleted, and what waits for that?
import { findLink, type Link, removeLink } from '../../netlink/rtnl/link.ts';
import type { Call, Done } from '../../plugin/define.ts';
import { tryAll } from '../../plugin/try-all.ts';

/**
 * Deletes the attachment's device if the namespace still exists, then does what has to wait until it is gone, such as releasing
 * its address. A device of another kind under the same name is not ours, and is kept.
 * @param alsoNamed further names of devices that belong to the attachment
 */
export async function removeDevice(
  call: Call,
  kind: string,
  then: () => Done,
  alsoNamed: readonly string[] = [],
): Promise<void> {
  const devices = findOwn(call, kind, alsoNamed);
  await tryAll([
    ...devices.map(
      ({ index }) =>
        () =>
          removeLink(call.container, index),
    ),
    then,
  ]);
}

function findOwn(call: Call, kind: string, alsoNamed: readonly string[]): Link[] {
  if (!call.findContainerNetns()) return [];
  return [call.env.ifname, ...alsoNamed].flatMap(name => {
    const link = findLink(call.container, name);
    if (link === undefined || link.kind === kind) return link ?? [];
    call.log.warn(
      `Cannot delete "${name}": it is of kind "${link.kind}", not the ${kind} that this plugin created`,
    );
    return [];
  });
}

/** Releases the address: the last step of DEL. */
export function releaseAddress(call: Call<{ ipam?: { type?: string | undefined } | undefined }>): Done {
  const type = call.conf.ipam?.type;
  return type ? call.delegate(type).del() : undefined;
}
