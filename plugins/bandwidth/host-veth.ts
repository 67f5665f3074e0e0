// Which interface on the host carries an attachment's traffic?

import { attachmentOf } from '../../src/attach/owner.ts';
import { findOwner, renderOwner } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { askAll } from '../../src/netlink/ask.ts';
import { ALIAS_MAX_BYTES, findLink, type Link, linkQuestion } from '../../src/netlink/rtnl/link.ts';
import { netnsIdQuestion } from '../../src/netlink/rtnl/netns-id.ts';
import type { Call } from '../../src/plugin/define.ts';

/**
 * The host end of the container's veth. It must be among the interfaces of `prevResult`: otherwise this chain did not make it.
 * @throws CniError 7, naming the obstacle
 */
export function getHostVeth(call: Call, prevResult: Result): Link {
  const { ifname } = call.env;
  const action = `limit interface "${ifname}" in "${call.env.netns}"`;
  const link = findLink(call.container, ifname);
  if (link === undefined) throw refuse(action, 'there is no such interface');
  if (link.kind !== 'veth') {
    throw refuse(action, `it is of kind "${link.kind || 'physical'}" and has no veth peer on the host`);
  }
  const peer = findPeer(call, link);
  if (peer === undefined) {
    throw refuse(action, `its veth peer with index ${link.peer} is not in the host namespace`);
  }
  const known = hostInterfacesOf(prevResult);
  if (known.includes(peer.name)) return peer;
  const names = known.length ? known.map(name => `"${name}"`).join(', ') : 'none';
  throw refuse(
    action,
    `its host end "${peer.name}" is not among the host interfaces of prevResult (${names})`,
  );
}

/**
 * Where limits may remain: the peer of the container's interface or, without one, the interfaces that `prevResult` names. Leaves
 * out missing devices, and devices that have taken over the name: those whose alias names another attachment, or whose hardware
 * address differs from the one in `prevResult`.
 */
export function findHostVeths(call: Call): Link[] {
  const link = call.findContainerNetns() && findLink(call.container, call.env.ifname);
  const peer = link?.kind === 'veth' ? findPeer(call, link) : undefined;
  // Another container may have been attached in the namespace after it was examined: whose the peer is, is asked with it in hand.
  if (peer && call.findContainerNetns(true)) return [peer];
  const own = renderOwner(attachmentOf(call), ALIAS_MAX_BYTES);
  return (call.prevResult?.interfaces ?? []).flatMap(({ name, mac, sandbox }) => {
    if (sandbox) return [];
    const found = findLink(call.host, name);
    if (found?.kind !== 'veth' || (mac && mac.toLowerCase() !== found.mac)) return [];
    const { alias } = found.attrs;
    return findOwner(alias) === undefined || alias === own ? [found] : [];
  });
}

/** The other end, if it is on the host: an index is only meaningful in its own namespace. */
function findPeer(call: Call, link: Link): Link | undefined {
  if (link.peer <= 0) return undefined;
  const [peer, netnsId] = askAll(call.host, [
    linkQuestion(link.peer),
    netnsIdQuestion(call.containerNetns.fd),
  ]);
  if (peer?.kind !== 'veth' || peer.peer !== link.index) return undefined;
  return (peer.attrs.linkNetnsId ?? -1) === netnsId ? peer : undefined;
}

function hostInterfacesOf({ interfaces = [] }: Result): string[] {
  return interfaces.filter(({ sandbox }) => !sandbox).map(({ name }) => name);
}

function refuse(action: string, state: string): CniError {
  return new CniError(ErrorCode.invalidConfig, `Cannot ${action}: ${state}`);
}
