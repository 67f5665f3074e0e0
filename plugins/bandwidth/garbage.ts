// Which IFB devices has nobody any use for?
import type { AttachmentKey } from '../../src/cni/plugin-config.ts';
import { listIngressFilters } from '../../src/netlink/rtnl/filter.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { listQdiscs } from '../../src/netlink/rtnl/qdisc.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { ifbNamesOf, listIfbs, ownerOf } from './ifb.ts';

/** An ADD of the reference takes some milliseconds between the device and the redirect to it. */
const ADD_MAY_TAKE_MS = 1_000;

/**
 * Devices of attachments to the network that are not valid, and devices without a note to which nothing leads: their
 * veth is gone, so whoever made them, the reference or we, for whatever network, they are left over.
 */
export async function findGarbage(
  host: NetlinkSocket,
  network: string,
  valid: readonly AttachmentKey[],
): Promise<Link[]> {
  const ifbs = listIfbs(host);
  const orphans = ifbs.filter(link => {
    const owner = ownerOf(link);
    const isValid = ({ containerID, ifname }: AttachmentKey) =>
      containerID === owner?.containerId && ifname === owner.ifname;
    return owner?.network === network && !valid.some(isValid);
  });
  const names = valid.flatMap(({ containerID: containerId, ifname }) =>
    ifbNamesOf({ network, containerId, ifname }),
  );
  const unnoted = ifbs.filter(link => ownerOf(link) === undefined && !names.includes(link.name));
  const unled = findUnled(host, unnoted);
  if (unled.length === 0) return orphans;
  await Bun.sleep(ADD_MAY_TAKE_MS);
  return [...orphans, ...findUnled(host, unled)];
}

/** Those to which no device redirects what comes in. */
function findUnled(host: NetlinkSocket, ifbs: readonly Link[]): Link[] {
  if (ifbs.length === 0) return [];
  const hooks = listQdiscs(host).filter(({ kind }) => kind === 'ingress' || kind === 'clsact');
  const targets = hooks.flatMap(({ index }) =>
    listIngressFilters(host, index).map(({ redirectAllTo }) => redirectAllTo),
  );
  return ifbs.filter(({ index }) => !targets.includes(index));
}
