// Could ADD connect a container now?
import { warnOfDroppingChains } from '../../src/attach/dropping.ts';
import { stuckFamilies } from '../../src/attach/forwarding.ts';
import { backendOf } from '../../src/attach/masq-backend.ts';
import { probeMasquerading } from '../../src/attach/masquerading.ts';
import { CniError, describeError, ErrorCode } from '../../src/cni/errors.ts';
import { listAddresses, RT_SCOPE_LINK } from '../../src/netlink/rtnl/addr.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/supported.ts';
import type { Call } from '../../src/plugin/define.ts';
import { type BridgeConf, gatewayPortName, wantsGateway } from './config.ts';
import { requireBridge } from './kernel/bridge.ts';
import { probeMacspoof } from './kernel/macspoof.ts';
import { requireUplink } from './kernel/uplink.ts';

/**
 * Looks for anything that would make ADD fail: missing device kinds, a bridge that is not one or cannot filter VLANs, the packet
 * filter, forwarding. Changes nothing.
 * @throws CniError 50, or 51 when connected containers are already affected
 */
export function probeBridge(call: Call<BridgeConf>): void {
  const { conf, host } = call;
  const hasLayer3 = Boolean(conf.ipam?.type);
  try {
    requireLinkKind(host, 'veth');
    const bridge = findLink(host, conf.bridge);
    if (bridge) requireBridge(conf, bridge);
    else requireLinkKind(host, 'bridge');
    if (conf.uplinkInterface) requireUplink(host, conf, bridge);
    if (conf.macspoofchk) probeMacspoof(call.hostNft);
    if (conf.ipMasq && hasLayer3) probeMasquerading(call, backendOf(conf));
    if (wantsGateway(conf) && hasLayer3) {
      probeForwarding(call, bridge);
      warnOfDroppingChains(call);
    }
  } catch (cause) {
    if (cause instanceof CniError && cause.code === ErrorCode.unavailableLimited) throw cause;
    const reason = describeError(cause);
    throw new CniError(
      ErrorCode.unavailable,
      `Cannot attach containers to bridge "${conf.bridge}": ${reason}`,
      {
        cause,
      },
    );
  }
}

/** The IPAM plugin decides which families the next container gets; those of the existing gateways are known. */
function probeForwarding({ conf, host }: Call<BridgeConf>, bridge: Link | undefined): void {
  const stuck = stuckFamilies();
  if (stuck.length === 0) return;
  const carrier = conf.vlan ? findLink(host, gatewayPortName(conf)) : bridge;
  const gateways = carrier ? listAddresses(host, carrier.index) : [];
  const used = gateways.filter(({ scope }) => scope !== RT_SCOPE_LINK).map(({ cidr }) => cidr.ip.family);
  const suffering = stuck.find(family => used.includes(family));
  const words = (family: 4 | 6) => `forwarding of IPv${family} is off and cannot be turned on`;
  if (suffering) {
    throw new CniError(
      ErrorCode.unavailableLimited,
      `Cannot attach containers to bridge "${conf.bridge}": ${words(suffering)}`,
    );
  }
  if (used.length === 0 && stuck.length === 2) throw new Error(stuck.map(words).join(', '));
}
