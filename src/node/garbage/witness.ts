// Has an attachment been made in this boot of the machine, whatever the records say?

import { join } from 'node:path';
import type { Made, NodeWitness } from '../../chain/run/runtime.ts';
import { type AttachmentId, renderOwner } from '../../cni/attachment.ts';
import { attempt } from '../../cni/errors.ts';
import { leaseDirsOf, loadAbouts, type PluginCatalog, typesOf } from '../../cni/plugin-about.ts';
import { parseResult, resultVersionOf } from '../../cni/result.ts';
import { findUse } from '../../ipam/holders.ts';
import { bootOf, parseOwner, readLease, sameOwner, tryListLeases } from '../../ipam/lease-files.ts';
import { ALIAS_MAX_BYTES, findLink } from '../../netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../netlink/socket.ts';
import { askHere, Tables } from '../../netlink/tables.ts';
import { findStranger } from '../../plugin/netns-owner.ts';
import { closeNetns, findNetns, inNetns } from '../../sys/netns.ts';

/**
 * Asks the kernel, and reads the lease directories.
 * @param find what is known about plugins; says where they keep leases
 */
export function nodeWitness(find: PluginCatalog['find']): NodeWitness {
  return {
    async findLife(list, id) {
      const pair = findPair(id);
      if (pair !== undefined) return pair;
      const dirs = leaseDirsOf(list, await loadAbouts(find, typesOf(list)));
      return findLease(dirs, id);
    },
    hasInterface,
  };
}

function hasInterface({ network, containerId, ifname, netns, result }: Made): boolean {
  const owner = { network, containerId, ifname };
  const place = findNetns(netns);
  if (place === undefined) return false;
  try {
    const container = inNetns(place, () => new NetlinkSocket(NETLINK_ROUTE));
    try {
      if (findLink(container, ifname) === undefined) return false;
      // One that cannot be read tells nothing of the interface.
      const prevResult = attempt(
        () => result && parseResult(result, resultVersionOf(result, '1.1.0'), 'recorded result'),
      );
      const known = { owner, prevResult, isAttached: () => true };
      const visit = { ...known, container, netnsFd: place.fd };
      // Namespaces are used again: after a DEL the name may be that of the next attachment.
      return askHere(NETLINK_ROUTE, host => findStranger({ ...visit, host }) === undefined);
    } finally {
      container.close();
    }
  } finally {
    closeNetns(place);
  }
}

/** A pair that carries the name of the attachment, with its other end in a namespace that has a process or a name. */
function findPair(id: AttachmentId): string | undefined {
  const alias = renderOwner(id, ALIAS_MAX_BYTES);
  const pairs = new Tables().links.filter(({ kind, attrs }) => kind === 'veth' && attrs.alias === alias);
  const farEnds = pairs.length ? findUse()?.farEnds : undefined;
  for (const { index, name } of pairs) {
    const netns = farEnds?.get(index);
    if (netns !== undefined) return `the peer of "${name}" is in namespace "${netns}"`;
  }
  return undefined;
}

/** A lease that names the attachment and was written since the machine was started. */
function findLease(dirs: readonly string[], { containerId, ifname }: AttachmentId): string | undefined {
  for (const dir of dirs) {
    for (const address of tryListLeases(dir)) {
      const owner = parseOwner(readLease(dir, address) ?? '');
      const isOwn = owner !== undefined && sameOwner(owner, { containerId, ifname });
      if (isOwn && bootOf(join(dir, address)) === 'this')
        return `the lease of ${address} in "${dir}" is from this boot`;
    }
  }
  return undefined;
}
