// Is everything that ADD made still as ADD made it, and would the next ADD succeed?

import { cidrsOf } from '../../src/attach/addressing.ts';
import { probeAddresses } from '../../src/attach/conflict.ts';
import {
  checkRoutes,
  repairAddresses,
  repairInterface,
  repairReportedRoutes,
} from '../../src/attach/container.ts';
import {
  checkAddresses,
  checkContainerEnd,
  checkHostEnd,
  checkMac,
  checkNeighbours,
  checkUp,
  raise,
  removeWrongNeighbours,
  repairHostMac,
  requirePrevResult,
  stateOf,
} from '../../src/attach/device.ts';
import { checkForwarding, ensureForwarding, stuckFamilies } from '../../src/attach/forwarding.ts';
import { probeMasquerading, repairMasquerading } from '../../src/attach/masquerading.ts';
import { warnOfDroppingChains } from '../../src/attach/ready.ts';
import { CniError, describeError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { listAddresses, RT_SCOPE_LINK } from '../../src/netlink/rtnl/addr.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/kinds.ts';
import {
  bridgePortRequest,
  findHostEnd,
  findLink,
  getLink,
  IFF_PROMISC,
  kindDataOf,
  type Link,
  OPERSTATES,
  type PortSettings,
  portDataOf,
  portStateOf,
  setLink,
} from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { confirm, mend, tryAll } from '../../src/plugin/steps.ts';
import { type BridgeConf, gatewayPortName, sharesLink, wantsGateway } from './config.ts';
import {
  checkPortVlans,
  ensureFiltering,
  ensureGroupFwdMask,
  ensureUplink,
  findGatewayProblem,
  groupFwdMaskOf,
  requireBridge,
  requireUplink,
  setPortVlans,
  vlanFilteringOf,
} from './kernel/bridge.ts';
import { checkSubnetRoutes, ensureGateways, ensureSubnetRoutes } from './kernel/gateway.ts';
import { checkMacspoof, hasReferenceMacspoof, probeMacspoof, restoreMacspoof } from './kernel/macspoof.ts';

import { type Addressing, addressingOf, planVlans, wantsFiltering } from './plan.ts';

/**
 * Compares bridge, pair, VLANs, addresses and routes with the result of ADD. Masquerading is checked separately, in the plugin.
 * @throws Error naming the first difference, CniError 7 without a usable prevResult
 */
export function checkAttachment(call: Call<BridgeConf>): void {
  const { conf } = call;
  const prevResult = requirePrevResult(call);
  const bridge = checkBridge(call, prevResult);
  const container = checkContainerEnd(call, prevResult, !call.conf.disableContainerInterface);
  const port = checkPort(call, prevResult, bridge, container);
  if (conf.macspoofchk) checkRestriction(call, port, container);
  if (!conf.ipam?.type) return;
  const addressing = addressingOf(conf, prevResult);
  checkAddresses(call.container, container, cidrsOf(addressing.ips));
  checkRoutes(call.container, container, addressing.routes);
  checkGateways(call, prevResult, bridge, container, addressing);
}

function checkBridge({ conf, host }: Call<BridgeConf>, prevResult: Result): Link {
  const name = `bridge "${conf.bridge}"`;
  const link = present(name, findLink(host, conf.bridge));
  confirm(`kind of ${name}`, 'bridge', link.kind);
  checkUp(name, link);
  if (conf.promiscMode) confirm(`promiscuous mode of ${name}`, true, (link.flags & IFF_PROMISC) !== 0);
  if (wantsFiltering(conf)) confirm(`VLAN filtering of ${name}`, 1, vlanFilteringOf(link));
  if (conf.groupFwdMask) confirm(`group_fwd_mask of ${name}`, conf.groupFwdMask, groupFwdMaskOf(link));
  if (conf.uplinkInterface) checkUplink(host, conf.uplinkInterface, link);
  // The configuration may have another name of it.
  const reported = prevResult.interfaces?.find(one => one.name === link.name && !one.sandbox);
  confirm(`${name} in the result`, link.name, reported?.name);
  // A bridge that was made again for another container has a new hardware address, for which containers ask.
  return link;
}

function checkUplink(host: Call['host'], ifname: string, bridge: Link): void {
  const name = `uplink "${ifname}"`;
  const link = present(name, findLink(host, ifname));
  confirm(`bridge of ${name}`, bridge.index, link.master);
  confirm(`state of ${name}`, 'up', stateOf(link));
}

function checkPort(call: Call<BridgeConf>, prevResult: Result, bridge: Link, container: Link): Link {
  const { conf, host } = call;
  const port = checkHostEnd(call, prevResult, container, conf.mtu);
  const name = `host end of "${container.name}"`;
  confirm(`bridge of ${name}`, bridge.index, port.master);
  const vlans = planVlans(conf);
  if (vlans) checkPortVlans(host, bridge, port, vlans);
  const settings = settingsOf(port);
  confirm(`hairpin mode of ${name}`, conf.hairpinMode, settings.hairpin);
  confirm(`isolation of ${name}`, conf.portIsolation, settings.isolated);
  confirm(`forwarding of the bridge port "${port.name}"`, true, !isStopped(bridge, port));
  return port;
}

/** How it is set as a port of its bridge; a port that is not said to be stopped forwards. */
function settingsOf(port: Link): Required<PortSettings> {
  const { hairpin, isolated } = portDataOf(port) ?? {};
  return { hairpin: hairpin === 1, isolated: isolated === 1, state: portStateOf(port) ?? 'forwarding' };
}

/**
 * Whether it passes nothing although it has a carrier, as after `bridge link set dev <port> state 0`. With the spanning tree
 * protocol, a port may block; it is disabled by hand only.
 */
function isStopped(bridge: Link, port: Link): boolean {
  const { state } = settingsOf(port);
  const isUp = OPERSTATES[port.attrs.operstate ?? 0] === 'up';
  if (!isUp || state === 'forwarding') return false;
  return state === 'disabled' || !kindDataOf(bridge, 'bridge')?.stpState;
}

/** Rules that the reference plugin made before this plugin replaced it are as good as our own. */
function checkRestriction(call: Call<BridgeConf>, port: Link, container: Link): void {
  try {
    checkMacspoof(call, port.name, container.mac ?? '');
  } catch (thrown) {
    if (!hasReferenceMacspoof(call)) throw thrown;
  }
}

function checkGateways(
  call: Call<BridgeConf>,
  prevResult: Result,
  bridge: Link,
  container: Link,
  { ips, gateways }: Addressing,
): void {
  if (gateways.length === 0) return;
  const { conf, host } = call;
  const target = conf.vlan ? checkGatewayPort(host, conf, prevResult, bridge) : bridge;
  checkAddresses(host, target, gateways);
  checkSubnetRoutes(host, target, gateways);
  checkNeighbours(call.container, container, target, gateways);
  checkNeighbours(host, target, container, cidrsOf(ips));
  checkForwarding(gateways, target.name);
}

function checkGatewayPort(host: Call['host'], conf: BridgeConf, prevResult: Result, bridge: Link): Link {
  const name = gatewayPortName(conf);
  const link = present(`gateway of VLAN ${conf.vlan}`, findLink(host, name));
  const problem = findGatewayProblem(host, bridge, link, conf.vlan);
  if (problem) throw new Error(`Cannot confirm "${name}" as gateway of VLAN ${conf.vlan}: ${problem}`);
  checkUp(`"${name}"`, link);
  const reported = prevResult.interfaces?.find(one => one.name === name && !one.sandbox);
  checkMac(`"${name}"`, reported, link);
  return link;
}

function present(what: string, link: Link | undefined): Link {
  if (link === undefined) throw new Error(`Cannot confirm ${what}: it is gone`);
  return link;
}

/**
 * Restores the bridge's state and gateways, the port's membership and VLANs, the container's interface with its addresses and routes,
 * anti-spoofing, masquerading and forwarding. Does not recreate a missing device.
 * @throws Error when a device is missing: only a new ADD can make it, and whatever refers to it must not be restored alone
 */
export async function repairAttachment(call: Call<BridgeConf>): Promise<void> {
  const { conf, host, container, prevResult } = call;
  const [bridge, inside] = [findLink(host, conf.bridge), findLink(container, call.env.ifname)];
  const port = inside && findHostEnd(call, inside);
  if (!prevResult || !bridge || !inside || !port) {
    const gone = bridge ? `interface "${call.env.ifname}" and its host end` : `bridge "${conf.bridge}"`;
    throw new Error(`Cannot repair the attachment: only DEL and ADD can recreate ${gone}`);
  }
  const addressing = conf.ipam?.type ? addressingOf(conf, prevResult) : undefined;
  await tryAll([
    () => repairBridge(call, bridge, inside, addressing),
    () => repairPort(call, bridge, port),
    () => repairRules(call, port, repairInterface(call, inside)),
    () => {
      if (!conf.disableContainerInterface) raise(container, inside);
    },
    async () => {
      if (!addressing) return;
      await tryAll([
        () =>
          repairAddresses(
            call,
            inside,
            cidrsOf(addressing.ips),
            sharesLink(conf) ? probeAddresses : undefined,
          ),
        () => repairReportedRoutes(call, inside, addressing.routes),
        () => repairLayer3(call, addressing),
      ]);
    },
  ]);
}

function repairBridge(
  call: Call<BridgeConf>,
  bridge: Link,
  inside: Link,
  addressing: Addressing | undefined,
): void {
  const { conf, host } = call;
  raise(host, bridge);
  if (conf.promiscMode) setLink(host, bridge.index, { promisc: true });
  if (wantsFiltering(conf)) ensureFiltering(call, bridge);
  ensureGroupFwdMask(call, bridge);
  ensureUplink(call, bridge);
  const target = conf.vlan ? findLink(host, gatewayPortName(conf)) : bridge;
  if (!addressing?.gateways.length || !target) return;
  raise(host, target);
  const gateway = ensureGateways(call, target, addressing);
  ensureSubnetRoutes(host, target, addressing.gateways);
  removeWrongNeighbours(call.container, inside, gateway, addressing.gateways);
  removeWrongNeighbours(host, target, inside, cidrsOf(addressing.ips));
}

function repairPort(call: Call<BridgeConf>, bridge: Link, port: Link): void {
  const { conf, host } = call;
  repairHostMac(call, port);
  if (port.master !== bridge.index) setLink(host, port.index, { master: bridge.index });
  raise(host, port);
  // What it is set to as a port may have come with the bridge just now.
  const now = getLink(host, port.index);
  const { hairpin, isolated, state } = settingsOf(now);
  const wanted = {
    hairpin: conf.hairpinMode,
    isolated: conf.portIsolation,
    state: isStopped(bridge, now) ? 'forwarding' : state,
  };
  if (hairpin !== wanted.hairpin || isolated !== wanted.isolated || state !== wanted.state)
    host.request(bridgePortRequest(port.index, wanted));
  const vlans = planVlans(conf);
  if (!vlans) return;
  mend(
    () => checkPortVlans(host, bridge, port, vlans),
    () => setPortVlans(host, conf, port, vlans),
  );
}

function repairRules(call: Call<BridgeConf>, port: Link, inside: Link): void {
  if (!call.conf.macspoofchk) return;
  if (hasReferenceMacspoof(call)) return;
  const { mac = '' } = inside;
  mend(
    () => checkMacspoof(call, port.name, mac),
    () => restoreMacspoof(call, port.name, mac),
  );
}

function repairLayer3(call: Call<BridgeConf>, { ips, gateways }: Addressing): void {
  const { conf } = call;
  ensureForwarding(call, gateways, conf.vlan ? gatewayPortName(conf) : conf.bridge);
  if (conf.ipMasq) repairMasquerading(call, conf, cidrsOf(ips));
}

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
    if (conf.ipMasq && hasLayer3) probeMasquerading(call, conf);
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
