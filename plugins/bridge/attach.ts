// By which steps does ADD connect a container to the bridge, and how is each step undone?
import { refuseTakenAddresses } from '../../src/attach/conflict.ts';
import { configureContainer } from '../../src/attach/container.ts';
import { resolveMtu } from '../../src/attach/mtu.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { awaitTraffic, type Stage } from '../../src/attach/ready.ts';
import { createPair, type Pair } from '../../src/attach/veth.ts';
import { isNetlinkError } from '../../src/netlink/errors.ts';
import { getLink, type Link, removeLink, setLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { Errno } from '../../src/sys/errno.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import { type BridgeConf, sharesLink } from './config.ts';
import { ensureBridge, isOurs } from './kernel/bridge.ts';
import { ensureGateways, keepMac } from './kernel/gateway.ts';
import { withBridgeLock } from './kernel/lock.ts';
import { ensureMacspoof, removeMacspoof } from './kernel/macspoof.ts';
import { ensureUplink } from './kernel/uplink.ts';
import { setPortVlans } from './kernel/vlan.ts';
import { ensureGatewayPort } from './kernel/vlan-gateway.ts';
import type { Addressing } from './plan.ts';
import { planVlans } from './vlans.ts';

/** What ADD connected. */
export interface Attached extends Pair {
  readonly bridge: Link;
  /** The interface that carries the gateway of a VLAN; undefined when the bridge itself carries the gateway. */
  readonly gatewayPort: Link | undefined;
}

const VANISHED_ATTEMPTS = 3;

/**
 * Creates the bridge, the pair and, with addressing, all of layer 3 except masquerading and forwarding. Registers its own undo
 * steps.
 * @param mac hardware address for the container's interface
 */
export async function attach(
  call: Call<BridgeConf>,
  addressing: Addressing | undefined,
  mac: string | undefined,
): Promise<Attached> {
  const { conf } = call;
  const attached = connect(call, addressing, mac);
  keepOutOfIpv6(attached.host);
  // Before the interface is up, so that no frame leaves unchecked.
  if (conf.macspoofchk) restrict(call, attached);
  if (addressing && sharesLink(conf)) await probe(call, attached, addressing);
  if (addressing) {
    configureContainer(call, attached.container, addressing, conf.enabledad);
  } else if (!conf.disableContainerInterface) {
    setLink(call.container, attached.container.index, { up: true });
  }
  return attached;
}

/** An interface without addresses announces nothing, so no host learns of it. */
async function probe(call: Call<BridgeConf>, attached: Attached, { ips }: Addressing): Promise<void> {
  setLink(call.container, attached.container.index, { up: true });
  await awaitTraffic(call.log, stagesOf(call, attached, undefined));
  await refuseTakenAddresses(
    call,
    attached.container,
    ips.map(({ cidr }) => cidr.ip),
  );
}

/** The interfaces that must work for packets to pass, in order from the container outwards. */
export function stagesOf(
  call: Call<BridgeConf>,
  attached: Attached,
  addressing: Addressing | undefined,
): Stage[] {
  const { container, host, bridge, gatewayPort } = attached;
  const own = call.conf.enabledad ? [] : (addressing?.ips ?? []).map(({ cidr }) => cidr.ip);
  const gateways = (addressing?.gateways ?? []).map(({ ip }) => ip);
  return [
    { socket: call.container, link: container, ips: own },
    { socket: call.host, link: host, ips: [] },
    { socket: call.host, link: bridge, ips: gatewayPort ? [] : gateways },
    ...(gatewayPort ? [{ socket: call.host, link: gatewayPort, ips: gateways }] : []),
  ];
}

/** Holds the bridge's lock, so that no other process of ours removes the bridge between its creation and its first port. */
function connect(
  call: Call<BridgeConf>,
  addressing: Addressing | undefined,
  mac: string | undefined,
): Attached {
  const { conf, host } = call;
  const gateways = addressing?.gateways ?? [];
  return withBridgeLock(conf.bridge, () => {
    for (let attempt = 1; ; attempt++) {
      const bridge = ensureBridge(call);
      try {
        ensureUplink(call, bridge);
        const hasPort = conf.vlan !== 0 && gateways.length > 0;
        const gatewayPort = hasPort ? ensureGatewayPort(call, bridge) : undefined;
        const target = addressing ? ensureGateways(call, gatewayPort ?? bridge, addressing) : bridge;
        const pair = createPort(call, bridge, mac);
        if (gatewayPort) return { ...pair, bridge: getLink(host, bridge.index), gatewayPort: target };
        const current = isOurs(target) ? target : keepMac(host, target, gateways.length > 0);
        return { ...pair, bridge: current, gatewayPort };
      } catch (thrown) {
        // Another program may have removed the bridge since it was found.
        if (!isNetlinkError(thrown, Errno.ENODEV) || attempt === VANISHED_ATTEMPTS) throw thrown;
      }
    }
  });
}

function createPort(call: Call<BridgeConf>, bridge: Link, mac: string | undefined): Pair {
  const { conf, host } = call;
  const port = { hairpin: conf.hairpinMode, isolated: conf.portIsolation };
  const pair = createPair(host, call.container, call.containerNetns, {
    owner: attachmentOf(call),
    master: bridge.index,
    port: port.hairpin || port.isolated ? port : undefined,
    mtu: resolveMtu(host, conf.mtu, conf.uplinkInterface),
    mac,
  });
  call.onFailure(`delete device "${pair.host.name}"`, () => removeLink(host, pair.host.index));
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
