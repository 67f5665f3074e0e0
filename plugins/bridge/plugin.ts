// What does the bridge plugin do for each verb?

import {
  callIpam,
  cidrsOf,
  dnsOf,
  holdingsOf,
  hostsOf,
  needsInterface,
  prepareIpam,
  refuseHostsOwn,
  removeAndRelease,
} from '../../src/attach/addressing.ts';
import {
  awaitDuplicateDetection,
  configureContainer,
  describeInterface,
  ignoreNeighbours,
} from '../../src/attach/container.ts';
import { ensureForwarding } from '../../src/attach/forwarding.ts';
import { requestedMac } from '../../src/attach/mac-and-mtu.ts';
import {
  checkMasquerading,
  handOverMasquerading,
  startMasquerading,
  stopMasquerading,
  stopStaleMasquerading,
} from '../../src/attach/masquerading.ts';
import { awaitTraffic, type Stage } from '../../src/attach/ready.ts';
import { createPair, type Pair, removePair, removeStalePairs } from '../../src/attach/veth.ts';
import type { HandoverMode } from '../../src/cni/env.ts';
import { type CniError, describeError, tryAgainLater } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import { atLeast, type Result, resultIp, SINCE } from '../../src/cni/result.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';
import type { Cidr, Ip } from '../../src/net/ip.ts';
import { findLink, getLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import {
  findForwardingPort,
  findNeighbour,
  probeNeighbourRequest,
} from '../../src/netlink/rtnl/neighbour.ts';
import { isNetlinkError, type NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, type Undo } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/steps.ts';
import { Errno } from '../../src/sys/errno.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import { BridgeConf, gatewayPortName, sharesLink, validateBridgeConf, wantsGateway } from './config.ts';
import {
  ensureBridge,
  ensureGatewayPort,
  ensureUplink,
  isOurs,
  portMtuOf,
  removeUnusedBridge,
  setPortVlans,
  withBridgeLock,
} from './kernel/bridge.ts';
import { ensureGateways, keepMac, removeIdleGateways } from './kernel/gateway.ts';
import {
  ensureMacspoof,
  ensureReferenceMacspoof,
  listAllowed,
  removeMacspoof,
  removeReferenceMacspoof,
  removeStaleMacspoof,
  removeUnusedReferenceMacspoof,
} from './kernel/macspoof.ts';
import { type Addressing, addressingOf, CONTAINER_INTERFACE, planAddressing, planVlans } from './plan.ts';

/** Connects a container to a bridge and, with an IPAM plugin, to the outside. */
export const plugin = definePlugin({
  name: 'bridge',
  config: BridgeConf,
  netns: 'required',
  validate: validateBridgeConf,

  async add(call) {
    const { conf } = call;
    const mac = requestedMac(call);
    const askIpam = prepareIpam(call);
    const port = connect(call, mac);
    if (needsInterface(conf)) {
      setLink(call.container, port.container.index, { up: true });
      await awaitTraffic(call.log, stagesOf(call, port, undefined));
    }
    const ipam = await askIpam();
    const addressing = ipam && planAddressing(conf, ipam);
    // Such a plugin may have changed the interface, for example its MTU.
    const current = needsInterface(conf)
      ? { ...port, container: getLink(call.container, port.container.index) }
      : port;
    if (addressing && sharesLink(conf)) {
      const { probeAddresses } = await import('../../src/attach/conflict.ts');
      const stages = stagesOf(call, current, undefined);
      await probeAddresses(call, current.container, stages, addressing.ips);
    }
    const attached = address(call, current, addressing);
    if (!conf.disableContainerInterface) {
      await awaitTraffic(call.log, stagesOf(call, attached, addressing));
      const ips = hostsOf(addressing?.ips ?? []);
      if (ips.length)
        await announceAddresses(call, attached.container, attached.gatewayPort ?? attached.bridge, ips);
    }
    if (addressing && conf.enabledad) await awaitDuplicateDetection(call.container, attached.container);
    const bridge = bridgeNow(call, attached.bridge);
    // The last step, because it has no undo step.
    ensureForwarding(call, addressing?.gateways ?? [], (attached.gatewayPort ?? bridge).name);
    return renderAttachment(call, { ...attached, bridge }, ipam, addressing);
  },

  async check(call) {
    const { conf, prevResult } = call;
    await callIpam(call, 'check');
    const { checkAttachment } = await loadCheck();
    checkAttachment(call);
    if (!conf.ipMasq || !prevResult || !conf.ipam?.type) return;
    checkMasquerading(call, conf, cidrsOf(addressingOf(conf, prevResult).ips));
  },

  async repair(call) {
    const { repairAttachment } = await loadCheck();
    await repairAttachment(call);
  },

  handOver(call, mode) {
    const { conf, prevResult } = call;
    const ips = conf.ipMasq && conf.ipam?.type && prevResult?.ips ? addressingOf(conf, prevResult).ips : [];
    return [...handOverMasquerading(call, cidrsOf(ips), mode), ...handOverMacspoof(call, mode)];
  },

  async del(call) {
    await removeAndRelease(call, 'del', release =>
      removePair(call, () =>
        tryAll([
          () => removeMacspoof(call),
          () => removeReferenceMacspoof(call),
          () => stopMasquerading(call),
          () => leaveBridge(call),
          release,
        ]),
      ),
    );
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await removeAndRelease(call, 'gc', release =>
      removeStalePairs(call, kept, () =>
        tryAll([
          () => removeStaleMacspoof(call, kept),
          () => removeUnusedReferenceMacspoof(call.hostNft, port => findLink(call.host, port) !== undefined),
          () => stopStaleMasquerading(call, kept),
          () => forEachBridge(call, name => removeUnusedBridge(call.host, name, call.conf.uplinkInterface)),
          release,
        ]),
      ),
    );
  },

  async status(call) {
    const { probeBridge } = await loadCheck();
    probeBridge(call);
    await callIpam(call, 'status');
  },
});

/** What ADD and DEL do not need. */
function loadCheck(): Promise<typeof import('./check.ts')> {
  return import('./check.ts');
}

/** The result: bridge, host end, container interface and a VLAN's gateway in this order, then the IPAM result. */
function renderAttachment(
  call: Call<BridgeConf>,
  { bridge: link, host, container, gatewayPort }: Attached,
  ipam: Result | undefined,
  addressing: Addressing | undefined,
): Result {
  const { conf } = call;
  const interfaces = [
    { name: link.name, mac: link.mac ?? '' },
    { name: host.name, mac: host.mac ?? '' },
    describeInterface(call, container, conf.mtu !== 0),
    ...(gatewayPort ? [{ name: gatewayPort.name, mac: gatewayPort.mac ?? '' }] : []),
  ];
  const dns = dnsOf(conf, ipam);
  const ips = addressing?.ips.map(ip => resultIp(ip, CONTAINER_INTERFACE));
  const routes = addressing?.resultRoutes;
  return {
    ...ipam,
    interfaces,
    ...defined({ ips }),
    ...(routes?.length ? { routes: [...routes] } : {}),
    ...defined({ dns }),
  };
}

/** The new chains are added before the elements are removed, so that no frame passes unchecked. @returns what was in our sets */
function handOverMacspoof(call: Call, mode: HandoverMode): string[] {
  const allowed = listAllowed(call);
  if (mode === 'do') {
    for (const { port, mac } of allowed) ensureReferenceMacspoof(call, port, mac);
    if (allowed.length) removeMacspoof(call);
  }
  return allowed.map(({ port }) => `anti-spoofing of "${port}"`);
}

/**
 * DEL: the bridge keeps its addresses, since programs of the host may be bound to them. Gateways are removed only of subnets that the
 * configuration does not hold, because another node may get those next; and a bridge without addresses gives the host its uplink back.
 * No result, where runtimes pass one, means an ADD that did not end: a process killed between the bridge and its first port leaves a bare
 * bridge.
 */
function leaveBridge(call: Call<BridgeConf>): void {
  const idle = passingGatewaysOf(call);
  const { uplinkInterface } = call.conf;
  const isUnfinished = call.prevResult === undefined && atLeast(call.version, SINCE.prevResultOnDel);
  const removesUnused = Boolean(uplinkInterface) || isUnfinished;
  if (idle.length === 0 && !removesUnused) return;
  forEachBridge(call, name => {
    if (idle.length) removePassing(call, name, idle);
    if (removesUnused) removeUnusedBridge(call.host, name, uplinkInterface);
  });
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

/** What ADD connected before the addresses are known. */
interface Port extends Pair {
  readonly bridge: Link;
  /** Registers how to undo a step on the bridge that came after the pair, but can only be undone once the pair is gone. */
  readonly onFailure: Call['onFailure'];
}

interface Attached extends Port {
  /** The interface that carries the gateway of a VLAN; undefined when the bridge itself carries the gateway. */
  readonly gatewayPort: Link | undefined;
}

const VANISHED_ATTEMPTS = 3;

/**
 * Creates the bridge and the pair. The container's interface stays down, so that the kernel can announce its addresses when it
 * comes up. Registers its own undo steps.
 * @param mac hardware address for the container's interface
 */
function connect(call: Call<BridgeConf>, mac: string | undefined): Port {
  const steps: UndoStep[] = [];
  const onFailure: Call['onFailure'] = (what, undo) => void steps.unshift({ what, undo });
  const port = { ...joinBridge(call, mac, steps), onFailure };
  keepOutOfIpv6(port.host);
  ignoreNeighbours(call, port.container.name);
  // Before the interface is up, so that no frame leaves unchecked.
  if (call.conf.macspoofchk) restrict(call, port);
  return port;
}

/** With addressing, sets up all of layer 3 except masquerading and forwarding. Brings the interface up. Registers its own undo steps. */
function address(call: Call<BridgeConf>, port: Port, addressing: Addressing | undefined): Attached {
  const { conf, container } = call;
  if (addressing === undefined) {
    if (!conf.disableContainerInterface) setLink(container, port.container.index, { up: true });
    return { ...port, gatewayPort: undefined };
  }
  if (addressing.gateways.length === 0) refuseHostsOwn(call, port.bridge, addressing.ips);
  const attached = addressing.gateways.length
    ? addGateways(call, port, addressing)
    : { ...port, gatewayPort: undefined };
  // Before the container has a route: it may run already, and what it sends untranslated stays so, as long as the flow goes on.
  if (conf.ipMasq) startMasquerading(call, conf, cidrsOf(addressing.ips));
  configureContainer(call, port.container, addressing, conf.enabledad);
  return attached;
}

/** The bridge with the hardware address that the program which created it may have set since `bridge` was looked up. */
function bridgeNow({ host }: Call<BridgeConf>, bridge: Link): Link {
  return isOurs(bridge) ? bridge : getLink(host, bridge.index);
}

/** The interfaces that must work for packets to pass, in order from the container outwards. */
function stagesOf(
  call: Call<BridgeConf>,
  { container, host, bridge, gatewayPort }: Port & Partial<Attached>,
  addressing: Addressing | undefined,
): Stage[] {
  const own = call.conf.enabledad ? [] : hostsOf(addressing?.ips ?? []);
  const gateways = (addressing?.gateways ?? []).map(({ ip }) => ip);
  return [
    { socket: call.container, link: container, ips: own },
    { socket: call.host, link: host, ips: [] },
    { socket: call.host, link: bridge, ips: gatewayPort ? [] : gateways },
    ...(gatewayPort ? [{ socket: call.host, link: gatewayPort, ips: gateways }] : []),
  ];
}

interface UndoStep {
  readonly what: string;
  readonly undo: Undo;
}

function describing({ what, undo }: UndoStep): () => Promise<void> {
  return async () => {
    try {
      await undo([]);
    } catch (cause) {
      throw new Error(`Cannot ${what}: ${describeError(cause)}`, { cause });
    }
  };
}

/**
 * Holds the bridge's lock, so that no other process of ours removes the bridge between its creation and its first port.
 * @param steps undone once the port is gone, and before the bridge is
 */
function joinBridge(
  call: Call<BridgeConf>,
  mac: string | undefined,
  steps: readonly UndoStep[],
): Omit<Port, 'onFailure'> {
  const { conf, host } = call;
  return withBridgeLock(conf.bridge, () => {
    for (let attempt = 1; ; attempt++) {
      const bridge = ensureBridge(call);
      try {
        ensureUplink(call, bridge);
        if (attempt === 1)
          call.onFailure('undo the changes to the bridge', () => tryAll(steps.map(describing)));
        const pair = createPort(call, bridge, mac);
        if (isOurs(bridge)) return { ...pair, bridge };
        // The gateway's address is expected on the bridge, unless a VLAN has an interface of its own for it.
        const keeps = wantsGateway(conf) && Boolean(conf.ipam?.type) && conf.vlan === 0;
        return { ...pair, bridge: keepMac(host, bridge, pair.host, keeps) };
      } catch (thrown) {
        if (isNetlinkError(thrown, Errno.EXFULL)) throw fullBridge(conf.bridge, thrown);
        // Another program may have removed the bridge since it was found.
        if (!isNetlinkError(thrown, Errno.ENODEV) || attempt === VANISHED_ATTEMPTS) throw thrown;
      }
    }
  });
}

/** Holds the bridge's lock, so that no DEL removes a gateway as unused that was just found in place. */
function addGateways(call: Call<BridgeConf>, port: Port, addressing: Addressing): Attached {
  const { onFailure } = port;
  return withBridgeLock(port.bridge.name, () => {
    const bridge = bridgeNow(call, port.bridge);
    const gatewayPort = call.conf.vlan ? ensureGatewayPort(call, bridge, onFailure) : undefined;
    const target = ensureGateways(call, gatewayPort ?? bridge, addressing, onFailure);
    if (gatewayPort === undefined) return { ...port, bridge: target, gatewayPort };
    return { ...port, bridge: getLink(call.host, bridge.index), gatewayPort: target };
  });
}

/** What to throw where the kernel refuses another port. */
function fullBridge(name: string, cause: unknown): CniError {
  return tryAgainLater(
    `Cannot connect another interface to bridge "${name}": it has 1023 ports, and the kernel allows no more; ` +
      'delete containers of it, or use another bridge for new ones',
    { cause },
  );
}

function createPort(call: Call<BridgeConf>, bridge: Link, mac: string | undefined): Pair {
  const { conf, host } = call;
  const port = { hairpin: conf.hairpinMode, isolated: conf.portIsolation };
  const pair = createPair(call, {
    master: bridge.index,
    port: port.hairpin || port.isolated ? port : undefined,
    mtu: portMtuOf(call, bridge),
    mac,
  });
  if (pair.container.mtu > bridge.mtu) {
    call.log.warn(
      `"${pair.container.name}" has an MTU of ${pair.container.mtu}, but bridge "${bridge.name}" of ${bridge.mtu}: larger packets are lost; set "mtu": "auto"`,
    );
  }
  const vlans = planVlans(conf);
  if (vlans) setPortVlans(host, conf, pair.host, vlans);
  return pair;
}

/**
 * A bridge port needs no IPv6 addresses. With them, the kernel also keeps routes and multicast groups, which it walks through
 * whenever any interface of the host appears or disappears: with a thousand containers that takes most of the time of an ADD.
 */
function keepOutOfIpv6({ name }: Link): void {
  trySysctl(`net/ipv6/conf/${name}/accept_ra`, '0');
  trySysctl(`net/ipv6/conf/${name}/disable_ipv6`, '1');
}

function restrict(call: Call<BridgeConf>, { host, container }: Pair): void {
  call.onFailure('remove the restriction on hardware addresses', () => removeMacspoof(call));
  ensureMacspoof(call, host.name, container.mac ?? '');
}

// Addresses are handed out again. A host or a container that has spoken to the former owner keeps its hardware address, and sends
// packets there until the entry fails: five seconds in state DELAY, then three unanswered probes. The kernel announces addresses
// when an interface comes up (arp_notify, ndisc_notify), but a bridge's port does not forward yet at that moment, and the
// announcement is lost.

/**
 * Has the kernel announce the interface's addresses again: a gratuitous ARP request for each of IPv4, an unsolicited neighbour
 * advertisement for each of IPv6 (NETDEV_CHANGEADDR in net/ipv4/devinet.c and net/ipv6/ndisc.c). To be called once packets pass.
 * Nothing is announced where another port of the bridge answers for one of the addresses: that would take its packets away.
 * Same as: `ip link set eth0 address <the one that it has>`
 */
async function announceAddresses(
  call: Pick<Call, 'container' | 'host'>,
  { index, mac }: Pick<Link, 'index' | 'mac'>,
  bridge: Pick<Link, 'index'>,
  ips: readonly Ip[],
): Promise<void> {
  const elsewhere = ips.flatMap(ip => findElsewhere(call.host, bridge.index, ip, mac) ?? []);
  if (await isAnswered(call.host, bridge.index, elsewhere)) return;
  setLink(call.container, index, { mac });
}

/** What the host knows of an address behind another port. */
interface Elsewhere {
  readonly ip: Ip;
  readonly mac: string;
  readonly isPermanent: boolean;
}

function findElsewhere(
  host: NetlinkSocket,
  bridge: number,
  ip: Ip,
  own: string | undefined,
): Elsewhere | undefined {
  const { mac, isPermanent = false } = findNeighbour(host, bridge, ip) ?? {};
  const isBehindPort =
    mac !== undefined && mac !== own && findForwardingPort(host, bridge, mac) !== undefined;
  return isBehindPort ? { ip, mac, isPermanent } : undefined;
}

const ANSWER_MS = 200;
const POLL_MS = 5;

/** Whether one of them still answers: the address may have moved from a machine beyond an uplink to this container. */
async function isAnswered(host: NetlinkSocket, bridge: number, all: readonly Elsewhere[]): Promise<boolean> {
  if (all.some(({ isPermanent }) => isPermanent)) return true;
  host.requestAll(all.map(({ ip, mac }) => probeNeighbourRequest(bridge, ip, mac)));
  const hasAnswered = ({ ip, mac }: Elsewhere) => {
    const now = findNeighbour(host, bridge, ip);
    return now?.isReachable === true && now.mac === mac;
  };
  for (let waited = 0; all.length > 0 && waited < ANSWER_MS; waited += POLL_MS) {
    if (all.some(hasAnswered)) return true;
    await Bun.sleep(POLL_MS);
  }
  return false;
}
