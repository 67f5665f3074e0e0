// What of the bridge is removed once containers are gone?
import { holdingsOf } from '../../src/attach/held-subnets.ts';
import type { Cidr } from '../../src/net/cidr.ts';
import { findIfnameProblem } from '../../src/net/ifname.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { type BridgeConf, gatewayPortName } from './config.ts';
import { isOurs, removeUnusedBridge } from './kernel/bridge.ts';
import { removeIdleGateways } from './kernel/idle-gateway.ts';
import { withBridgeLock } from './kernel/lock.ts';
import { addressingOf } from './plan.ts';

/**
 * DEL: the bridge keeps its addresses, since programs of the host may be bound to them. Gateways are removed only of subnets that the
 * configuration does not hold, because another node may get those next; and a bridge without addresses gives the host its uplink back.
 */
export function leaveBridge(call: Call<BridgeConf>): void {
  const idle = passingGatewaysOf(call);
  const { uplinkInterface } = call.conf;
  if (idle.length === 0 && !uplinkInterface) return;
  forEachBridge(call, name => {
    if (idle.length) removePassing(call, name, idle);
    if (uplinkInterface) removeUnusedBridge(call.host, name, uplinkInterface);
  });
}

/** GC: deletes a bridge of ours that has neither ports nor addresses. */
export function removeBridge(call: Call<BridgeConf>): void {
  forEachBridge(call, name => removeUnusedBridge(call.host, name, call.conf.uplinkInterface));
}

/** If the configuration has changed since ADD, the result still names the bridge used then. */
function forEachBridge({ conf, host, prevResult }: Call<BridgeConf>, finish: (name: string) => void): void {
  const reported = prevResult?.interfaces?.find(one => !one.sandbox)?.name;
  for (const name of new Set([conf.bridge, reported ?? conf.bridge])) {
    // A device with an invalid name cannot exist, and the kernel refuses to look for it.
    if (findIfnameProblem(name) || findLink(host, name)?.kind !== 'bridge') continue;
    withBridgeLock(name, () => finish(name));
  }
}

/** Addresses of a bridge that others created are left alone. */
function removePassing({ conf, host }: Call<BridgeConf>, name: string, gateways: readonly Cidr[]): void {
  const bridge = findLink(host, name);
  if (bridge === undefined || !isOurs(bridge)) return;
  const target = conf.vlan ? findLink(host, gatewayPortName({ bridge: name, vlan: conf.vlan })) : bridge;
  if (target) removeIdleGateways(host, name, target, gateways);
}

/**
 * The attachment's gateways, as far as the runtime knows them, whose subnets IPAM may give to another node. The gateway of a requested
 * address was on the bridge before.
 */
function passingGatewaysOf(call: Call<BridgeConf>): Cidr[] {
  const { conf, prevResult } = call;
  if (!prevResult?.ips?.length) return [];
  const { holds, isAsked } = holdingsOf(call);
  try {
    const { ips, gateways } = addressingOf(conf, prevResult);
    return ips.some(({ cidr }) => isAsked(cidr.ip)) ? [] : gateways.filter(gateway => !holds(gateway));
  } catch {
    // A malformed result from another plugin is no reason to fail.
    return [];
  }
}
