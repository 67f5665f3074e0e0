// What happens to the bridge and its gateways once containers are gone?
import { holdingsOf } from '../../src/attach/held-subnets.ts';
import type { Cidr } from '../../src/net/cidr.ts';
import { findIfnameProblem } from '../../src/net/ifname.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { type BridgeConf, gatewayPortName } from './config.ts';
import { clearUnusedBridge, isOurs, removeUnusedBridge } from './kernel/bridge.ts';
import { findLeftovers, removeIdleGateways } from './kernel/idle-gateway.ts';
import { withBridgeLock } from './kernel/lock.ts';
import { addressingOf } from './plan.ts';

/**
 * DEL: a bridge that this plugin created loses its addresses with its last port, and the device stays for the next container.
 * Gateway ports of VLANs and gateways of subnets that no container uses are removed. If the configuration has changed since ADD, the
 * result still names the bridge used then.
 */
export function leaveBridge(call: Call<BridgeConf>): void {
  forEachBridge(call, clearUnusedBridge);
}

/** GC: the same, but the bridge is deleted as well. */
export function removeBridge(call: Call<BridgeConf>): void {
  forEachBridge(call, removeUnusedBridge);
}

function forEachBridge(call: Call<BridgeConf>, finish: typeof clearUnusedBridge): void {
  const { conf, host, prevResult } = call;
  const reported = prevResult?.interfaces?.find(one => !one.sandbox)?.name;
  for (const name of new Set([conf.bridge, reported ?? conf.bridge])) {
    // A device with an invalid name cannot exist, and the kernel refuses to look for it.
    if (findIfnameProblem(name) || findLink(host, name)?.kind !== 'bridge') continue;
    withBridgeLock(name, () => {
      const gateways = gatewaysOf(call);
      if (gateways?.length) removeLeftovers(call, name, gateways);
      finish(host, name, { ours: gateways, uplink: conf.uplinkInterface });
    });
  }
}

/**
 * Removes the gateways of the attachment's subnets from a bridge of ours that is kept: a subnet without containers would leave
 * the host with a route to nowhere. Addresses of a bridge that others created are left alone.
 */
function removeLeftovers(call: Call<BridgeConf>, name: string, gateways: readonly Cidr[]): void {
  const { conf, host } = call;
  const bridge = findLink(host, name);
  if (bridge === undefined || !isOurs(bridge)) return;
  const target = conf.vlan ? findLink(host, gatewayPortName({ bridge: name, vlan: conf.vlan })) : bridge;
  if (target === undefined) return;
  const { holds } = holdingsOf(call);
  const leftovers = findLeftovers(host, target, gateways, holds);
  if (leftovers.length) removeIdleGateways(host, name, target, leftovers);
}

/** Addresses on the bridge that come from us, as far as the runtime knows. */
function gatewaysOf({ conf, prevResult }: Call<BridgeConf>): readonly Cidr[] | undefined {
  if (!prevResult?.ips?.length) return undefined;
  try {
    return addressingOf(conf, prevResult).gateways;
  } catch {
    // A malformed result from another plugin is no reason to keep what is ours.
    return undefined;
  }
}
