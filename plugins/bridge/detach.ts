// When does the bridge itself go?
import type { Cidr } from '../../src/net/cidr.ts';
import { findIfnameProblem } from '../../src/net/ifname.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { BridgeConf } from './config.ts';
import { removeUnusedBridge } from './kernel/bridge.ts';
import { withBridgeLock } from './kernel/lock.ts';
import { addressingOf } from './plan.ts';

/**
 * Removes the bridge after its last port, if this link made it, and gateway ports of VLANs that nobody is in. Where the
 * configuration has changed since, the result still names the bridge of then.
 */
export function removeBridge(call: Call<BridgeConf>): void {
  const { conf, host, prevResult } = call;
  const reported = prevResult?.interfaces?.find(one => !one.sandbox)?.name;
  for (const name of new Set([conf.bridge, reported ?? conf.bridge])) {
    // There is no link of a name that none can have; the kernel refuses to look.
    if (findIfnameProblem(name) || findLink(host, name)?.kind !== 'bridge') continue;
    withBridgeLock(name, () => removeUnusedBridge(host, name, gatewaysOf(call)));
  }
}

/** Addresses on the bridge that come from us, as far as the runtime knows. */
function gatewaysOf({ conf, prevResult }: Call<BridgeConf>): readonly Cidr[] | undefined {
  if (!prevResult?.ips?.length) return undefined;
  try {
    return addressingOf(conf, prevResult).gateways;
  } catch {
    // A result of somebody else is no reason to keep what is ours.
    return undefined;
  }
}
