// How is everything that belongs to an attachment found and removed?
import { type Attachment, renderOwner } from '../../src/cni/attachment.ts';
import { findLink, removeLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { BridgeConf } from './config.ts';
import { removeUnusedBridge, withBridgeLock } from './kernel/bridge.ts';
import { listPairs } from './kernel/veth.ts';
import { addressingOf } from './plan.ts';

/**
 * Deletes the pair of an attachment, by whichever end can be found: the container's interface, else the host end that
 * carries the attachment as its alias. An interface of another kind is not ours and stays.
 */
export function removePair(call: Call<BridgeConf>): void {
  const { ifname, containerId } = call.env;
  if (call.findContainerNetns()) {
    const link = findLink(call.container, ifname);
    if (link === undefined) return;
    if (link.kind === 'veth') removeLink(call.container, link.index);
    else
      call.log.warn(`Cannot delete "${ifname}": it is of kind "${link.kind}", not the veth this link made`);
    return;
  }
  for (const { link, owner } of listPairs(call.host, call.network)) {
    if (owner.containerId === containerId && owner.ifname === ifname) removeLink(call.host, link.index);
  }
}

/** Removes the bridge after its last port, if this link made it. */
export function removeBridge(call: Call<BridgeConf>): void {
  const { conf, host, prevResult } = call;
  const ours = prevResult?.ips?.length ? addressingOf(conf, prevResult).gateways : undefined;
  if (findLink(host, conf.bridge) === undefined) return;
  withBridgeLock(conf.bridge, () => removeUnusedBridge(host, conf.bridge, ours));
}

/** Deletes the pairs of the network whose attachment is not valid any more. */
export function removeStalePairs(call: Call<BridgeConf>, valid: readonly Attachment[]): void {
  const keep = new Set(valid.map(one => renderOwner(one)));
  for (const { link, owner } of listPairs(call.host, call.network)) {
    if (keep.has(renderOwner(owner))) continue;
    call.log.info(`Deleting "${link.name}" of stale attachment ${owner.containerId}/${owner.ifname}`);
    removeLink(call.host, link.index);
  }
}
