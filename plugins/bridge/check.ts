// Is everything that ADD made still as ADD made it?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result, ResultInterface } from '../../src/cni/result.ts';
import { type Cidr, networkOf, renderCidr } from '../../src/net/cidr.ts';
import { renderIp, sameIp } from '../../src/net/ip.ts';
import { listAddresses } from '../../src/netlink/rtnl/addr.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { IFF_PROMISC, IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import { listRoutes, type Route } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import { findSysctl } from '../../src/sys/sysctl.ts';
import type { BridgeConf } from './config.ts';
import { type Addressing, addressingOf } from './plan.ts';

/** linux/rtnetlink.h */
const RT_TABLE_MAIN = 254;

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

function checkAddresses(socket: NetlinkSocket, link: Link, wanted: readonly Cidr[]): void {
  const present = listAddresses(socket, link.index).map(({ cidr }) => renderCidr(cidr));
  for (const cidr of wanted) {
    const text = renderCidr(cidr);
    if (!present.includes(text)) confirm(`addresses of "${link.name}"`, text, present);
  }
}

function checkRoutes(socket: NetlinkSocket, link: Link, wanted: Addressing['routes']): void {
  const present = listRoutes(socket).filter(({ oif }) => oif === link.index);
  for (const route of wanted) {
    if (present.some(one => isSameRoute(one, route))) continue;
    confirm(`routes of "${link.name}"`, renderRoute(route), present.map(renderRoute));
  }
}

function checkGateways(socket: NetlinkSocket, bridge: Link, { gateways }: Addressing): void {
  checkAddresses(socket, bridge, gateways);
  for (const { ip } of gateways) {
    const sysctl = ip.family === 4 ? 'net/ipv4/ip_forward' : 'net/ipv6/conf/all/forwarding';
    confirm(`sysctl "${sysctl}"`, '1', findSysctl(sysctl));
  }
}

function checkMac(name: string, reported: ResultInterface | undefined, link: Link): void {
  if (reported?.mac) confirm(`hardware address of ${name}`, reported.mac.toLowerCase(), link.mac);
}

function isSameRoute(found: Route, wanted: Omit<Route, 'oif'>): boolean {
  const network = networkOf(wanted.dst);
  if (!sameIp(networkOf(found.dst), network) || found.dst.prefix !== wanted.dst.prefix) return false;
  if ((wanted.table || RT_TABLE_MAIN) !== found.table) return false;
  return (
    wanted.gateway === undefined || (found.gateway !== undefined && sameIp(found.gateway, wanted.gateway))
  );
}

function renderRoute({ dst, gateway }: Omit<Route, 'oif'>): string {
  return `${renderCidr(dst)}${gateway ? ` via ${renderIp(gateway)}` : ''}`;
}

function stateOf(link: Link): string {
  return link.flags & IFF_UP ? 'up' : 'down';
}
