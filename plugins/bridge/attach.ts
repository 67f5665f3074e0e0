// By which steps does ADD connect a container to the bridge, and how is each step undone?
import { configureContainer, ignoreNeighbours } from '../../src/attach/container.ts';
import { refuseHostsOwn } from '../../src/attach/hosts-own.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import type { Stage } from '../../src/attach/ready.ts';
import { createPair, type Pair } from '../../src/attach/veth.ts';
import { describeError } from '../../src/cni/errors.ts';
import { isNetlinkError } from '../../src/netlink/errors.ts';
import { getLink, type Link, removeLink, setLink } from '../../src/netlink/rtnl/link.ts';
import type { Call, Done } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { Errno } from '../../src/sys/errno.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import { type BridgeConf, wantsGateway } from './config.ts';
import { ensureBridge, isOurs, portMtuOf, withBridgeLock } from './kernel/bridge.ts';
import { ensureGateways, keepMac } from './kernel/gateway.ts';
import { ensureMacspoof, removeMacspoof } from './kernel/macspoof.ts';
import { ensureUplink } from './kernel/uplink.ts';
import { setPortVlans } from './kernel/vlan.ts';
import { ensureGatewayPort } from './kernel/vlan-gateway.ts';
import { type Addressing, planVlans } from './plan.ts';

/** What ADD connected before the addresses are known. */
export interface Port extends Pair {
  readonly bridge: Link;
  /** Registers how to undo a step on the bridge that came after the pair, but can only be undone once the pair is gone. */
  readonly onFailure: Call['onFailure'];
}

/** What ADD connected. */
export interface Attached extends Port {
  /** The interface that carries the gateway of a VLAN; undefined when the bridge itself carries the gateway. */
  readonly gatewayPort: Link | undefined;
}

const VANISHED_ATTEMPTS = 3;

/**
 * Creates the bridge and the pair. The container's interface stays down, so that the kernel can announce its addresses when it
 * comes up. Registers its own undo steps.
 * @param mac hardware address for the container's interface
 */
export function connect(call: Call<BridgeConf>, mac: string | undefined): Port {
  const steps: { what: string; undo: () => Done }[] = [];
  const onFailure: Call['onFailure'] = (what, undo) => void steps.unshift({ what, undo });
  const port = { ...joinBridge(call, mac, () => registerAll(call, steps)), onFailure };
  keepOutOfIpv6(port.host);
  ignoreNeighbours(call, port.container.name);
  // Before the interface is up, so that no frame leaves unchecked.
  if (call.conf.macspoofchk) restrict(call, port);
  return port;
}

/** With addressing, sets up all of layer 3 except masquerading and forwarding. Brings the interface up. Registers its own undo steps. */
export function address(call: Call<BridgeConf>, port: Port, addressing: Addressing | undefined): Attached {
  const { conf, container } = call;
  if (addressing === undefined) {
    if (!conf.disableContainerInterface) setLink(container, port.container.index, { up: true });
    return { ...port, gatewayPort: undefined };
  }
  if (addressing.gateways.length === 0) refuseHostsOwn(call, port.bridge, addressing.ips);
  const attached = addressing.gateways.length
    ? addGateways(call, port, addressing)
    : { ...port, gatewayPort: undefined };
  configureContainer(call, port.container, addressing, conf.enabledad);
  return attached;
}

/** The bridge with the hardware address that the program which created it may have set since `bridge` was looked up. */
export function bridgeNow({ host }: Call<BridgeConf>, bridge: Link): Link {
  return isOurs(bridge) ? bridge : getLink(host, bridge.index);
}

/** The interfaces that must work for packets to pass, in order from the container outwards. */
export function stagesOf(
  call: Call<BridgeConf>,
  { container, host, bridge, gatewayPort }: Port & Partial<Attached>,
  addressing: Addressing | undefined,
): Stage[] {
  const own = call.conf.enabledad ? [] : (addressing?.ips ?? []).map(({ cidr }) => cidr.ip);
  const gateways = (addressing?.gateways ?? []).map(({ ip }) => ip);
  return [
    { socket: call.container, link: container, ips: own },
    { socket: call.host, link: host, ips: [] },
    { socket: call.host, link: bridge, ips: gatewayPort ? [] : gateways },
    ...(gatewayPort ? [{ socket: call.host, link: gatewayPort, ips: gateways }] : []),
  ];
}

function registerAll(call: Call, steps: readonly { what: string; undo: () => Done }[]): void {
  call.onFailure('undo the changes to the bridge', () =>
    tryAll(
      steps.map(
        ({ what, undo }) =>
          () =>
            describing(what, undo),
      ),
    ),
  );
}

async function describing(what: string, undo: () => Done): Promise<void> {
  try {
    await undo();
  } catch (cause) {
    throw new Error(`Cannot ${what}: ${describeError(cause)}`, { cause });
  }
}

/**
 * Holds the bridge's lock, so that no other process of ours removes the bridge between its creation and its first port.
 * @param beforePort called between both
 */
function joinBridge(
  call: Call<BridgeConf>,
  mac: string | undefined,
  beforePort: () => void,
): Omit<Port, 'onFailure'> {
  const { conf, host } = call;
  return withBridgeLock(conf.bridge, () => {
    for (let attempt = 1; ; attempt++) {
      const bridge = ensureBridge(call);
      try {
        ensureUplink(call, bridge);
        if (attempt === 1) beforePort();
        const pair = createPort(call, bridge, mac);
        if (isOurs(bridge)) return { ...pair, bridge };
        // The gateway's address is expected on the bridge, unless a VLAN has an interface of its own for it.
        const keeps = wantsGateway(conf) && Boolean(conf.ipam?.type) && conf.vlan === 0;
        return { ...pair, bridge: keepMac(host, bridge, pair.host, keeps) };
      } catch (thrown) {
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

function createPort(call: Call<BridgeConf>, bridge: Link, mac: string | undefined): Pair {
  const { conf, host } = call;
  const port = { hairpin: conf.hairpinMode, isolated: conf.portIsolation };
  const pair = createPair(host, call.container, call.containerNetns, {
    owner: attachmentOf(call),
    master: bridge.index,
    port: port.hairpin || port.isolated ? port : undefined,
    mtu: portMtuOf(call, bridge),
    mac,
  });
  call.onFailure(`delete device "${pair.host.name}"`, () => removeLink(host, pair.host.index));
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
  const owner = attachmentOf(call);
  call.onFailure('remove the restriction on hardware addresses', () => removeMacspoof(call.hostNft, owner));
  ensureMacspoof(call.hostNft, owner, host.name, container.mac ?? '');
}
