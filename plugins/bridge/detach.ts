// When does the bridge itself go?
import { findLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { BridgeConf } from './config.ts';
import { removeUnusedBridge } from './kernel/bridge.ts';
import { withBridgeLock } from './kernel/lock.ts';
import { addressingOf } from './plan.ts';

/** Removes the bridge after its last port, if this link made it. */
export function removeBridge(call: Call<BridgeConf>): void {
  const { conf, host, prevResult } = call;
  const ours = prevResult?.ips?.length ? addressingOf(conf, prevResult).gateways : undefined;
  if (findLink(host, conf.bridge) === undefined) return;
  withBridgeLock(conf.bridge, () => removeUnusedBridge(host, conf.bridge, ours));
}
