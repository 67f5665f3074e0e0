// When is the bridge itself deleted?
import { holdingsOf } from '../../src/attach/held-subnets.ts';
import type { Cidr } from '../../src/net/cidr.ts';
import { findIfnameProblem } from '../../src/net/ifname.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { type BridgeConf, gatewayPortName } from './config.ts';
import { isOurs, removeUnusedBridge } from './kernel/bridge.ts';
import { findLeftovers, removeIdleGateways } from './kernel/idle-gateway.ts';
import { withBridgeLock } from './kernel/lock.ts';
import { addressingOf } from './plan.ts';

/**
 * Removes the bridge after its last port, if this plugin created it, as well as gateway ports of VLANs and gateways of subnets
 * that no container uses. If the configuration has changed since ADD, the result still names the bridge used then.
 */
export function removeBridge(call: Call<BridgeConf>): void {
  const { conf, host, prevResult } = call;
  const reported = prevResult?.interfaces?.find(one => !one.sandbox)?.name;
  for (const name of new Set([conf.bridge, reported ?? conf.bridge])) {
    // A device with an invalid name cannot exist, and the kernel refuses to look for it.
    if (findIfnameProblem(name) || findLink(host, name)?.kind !== 'bridge') continue;
    withBridgeLock(name, () => {
      const gateways = gatewaysOf(call);
      if (gateways?.length) removeLeftovers(call, name, gateways);
      removeUnusedBridge(host, name, gateways, conf.uplinkInterface);
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
