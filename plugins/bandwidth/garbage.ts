// Which IFB devices are garbage?
import { listIngressFilters } from '../../src/netlink/rtnl/filter.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { listQdiscs } from '../../src/netlink/rtnl/qdisc.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import type { KeptAttachments } from '../../src/plugin/kept.ts';
import { ifbNamesOf, listIfbs, ownerOf } from './ifb.ts';

/** An ADD of the reference takes a few milliseconds between creating the device and redirecting to it. */
const ADD_MAY_TAKE_MS = 1_000;

/**
 * Devices of the network's attachments that GC does not keep, and devices without a note and without a redirect to them: their
 * veth no longer exists, so they are garbage, whether the reference or we made them and for whatever network.
 */
export async function findGarbage(
  host: NetlinkSocket,
  network: string,
  kept: KeptAttachments,
): Promise<Link[]> {
  const ifbs = listIfbs(host);
  const unkept = ifbs.filter(link => {
    const owner = ownerOf(link);
    return owner?.network === network && !kept.has(owner);
  });
  const unnoted = ifbs.filter(
    link => ownerOf(link) === undefined && !kept.some(one => ifbNamesOf(one).includes(link.name)),
  );
  const unled = findUnled(host, unnoted);
  if (unled.length === 0) return unkept;
  await Bun.sleep(ADD_MAY_TAKE_MS);
  return [...unkept, ...findUnled(host, unled)];
}

/** Those to which no device redirects its incoming packets. */
function findUnled(host: NetlinkSocket, ifbs: readonly Link[]): Link[] {
  if (ifbs.length === 0) return [];
  const hooks = listQdiscs(host).filter(({ kind }) => kind === 'ingress' || kind === 'clsact');
  const targets = hooks.flatMap(({ index }) =>
    listIngressFilters(host, index).map(({ redirectAllTo }) => redirectAllTo),
  );
  return ifbs.filter(({ index }) => !targets.includes(index));
}
