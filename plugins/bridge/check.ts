// Is everything that ADD made still as ADD made it?
import { checkAddresses, checkMac, stateOf } from '../../src/attach/check.ts';
import { checkForwarding } from '../../src/attach/forwarding.ts';
import { checkRoutes } from '../../src/attach/routes.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { IFF_PROMISC } from '../../src/netlink/rtnl/link-header.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { BridgeConf } from './config.ts';
import { type Addressing, addressingOf } from './plan.ts';

/**
 * Compares bridge, pair, addresses and routes with the result of ADD. Masquerading is looked after by its own file.
 * @throws Error naming the first difference, CniError 7 without a usable prevResult
 */
export function checkAttachment(call: Call<BridgeConf>): void {
  const { conf, prevResult } = call;
  if (prevResult === undefined) {
    throw new CniError(ErrorCode.invalidConfig, 'Cannot check attachment: the request has no "prevResult"');
  }
  const bridge = checkBridge(call, prevResult);
  const container = checkContainer(call, prevResult);
  checkPort(call, prevResult, bridge, container);
  if (!conf.ipam?.type) return;
  const addressing = addressingOf(conf, prevResult);
  checkAddresses(
    call.container,
    container,
    addressing.ips.map(({ cidr }) => cidr),
  );
  checkRoutes(call.container, container, addressing.routes);
  checkGateways(call.host, bridge, addressing);
}

function checkBridge({ conf, host }: Call<BridgeConf>, prevResult: Result): Link {
  const name = `bridge "${conf.bridge}"`;
  const link = findLink(host, conf.bridge);
  confirm(`kind of ${name}`, 'bridge', link?.kind);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  confirm(`state of ${name}`, 'up', stateOf(link));
  if (conf.promiscMode) confirm(`promiscuous mode of ${name}`, true, (link.flags & IFF_PROMISC) !== 0);
  const reported = prevResult.interfaces?.find(one => one.name === conf.bridge && !one.sandbox);
  confirm(`${name} in the result`, conf.bridge, reported?.name);
  // Without a gateway the address of a bridge that others made moves with its ports.
  if (conf.isGateway || conf.isDefaultGateway) checkMac(name, reported, link);
  return link;
}

function checkContainer(call: Call<BridgeConf>, prevResult: Result): Link {
  const { conf, env } = call;
  const name = `interface "${env.ifname}"`;
  const reported = prevResult.interfaces?.find(one => one.name === env.ifname && one.sandbox === env.netns);
  confirm(`${name} of "${env.netns}" in the result`, env.ifname, reported?.name);
  const link = findLink(call.container, env.ifname);
  confirm(`kind of ${name}`, 'veth', link?.kind);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  // A later link such as tuning may rightly have changed it, and says so in the result.
  checkMac(name, reported, link);
  if (reported?.mtu !== undefined) confirm(`MTU of ${name}`, reported.mtu, link.mtu);
  if (!conf.disableContainerInterface) confirm(`state of ${name}`, 'up', stateOf(link));
  return link;
}

function checkPort(
  { conf, host }: Call<BridgeConf>,
  prevResult: Result,
  bridge: Link,
  container: Link,
): void {
  const port = findLink(host, container.peer);
  const name = `host end of "${container.name}"`;
  const reported = prevResult.interfaces?.find(one => one.name === port?.name && !one.sandbox);
  confirm(`${name} in the result`, port?.name, reported?.name);
  if (port === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  checkMac(name, reported, port);
  confirm(`bridge of ${name}`, bridge.index, port.master);
  confirm(`state of ${name}`, 'up', stateOf(port));
  const flags = port.attrs.linkinfo?.portData;
  if (flags === undefined || flags instanceof Uint8Array) return;
  confirm(`hairpin mode of ${name}`, conf.hairpinMode, flags.hairpin === 1);
  confirm(`isolation of ${name}`, conf.portIsolation, flags.isolated === 1);
}

function checkGateways(socket: NetlinkSocket, bridge: Link, { gateways }: Addressing): void {
  checkAddresses(socket, bridge, gateways);
  checkForwarding(gateways.map(({ ip }) => ip));
}
