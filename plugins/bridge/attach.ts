// In which steps does ADD connect a container to the bridge, and how is each taken back?
import { configureContainer } from '../../src/attach/container.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import type { Stage } from '../../src/attach/ready.ts';
import { createPair, type Pair } from '../../src/attach/veth.ts';
import { isNetlinkError } from '../../src/netlink/errors.ts';
import { getLink, type Link, removeLink, setLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { Errno } from '../../src/sys/errno.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import type { BridgeConf } from './config.ts';
import { ensureBridge, isOurs } from './kernel/bridge.ts';
import { ensureGateways, keepMac } from './kernel/gateway.ts';
import { withBridgeLock } from './kernel/lock.ts';
import { ensureMacspoof, removeMacspoof } from './kernel/macspoof.ts';
import { setPortVlans } from './kernel/vlan.ts';
import { ensureGatewayPort } from './kernel/vlan-gateway.ts';
import type { Addressing } from './plan.ts';
import { planVlans } from './vlans.ts';

/** What ADD connected. */
export interface Attached extends Pair {
  readonly bridge: Link;
  /** What carries the gateway of a VLAN; without one the bridge does. */
  readonly gatewayPort: Link | undefined;
}

const VANISHED_ATTEMPTS = 3;

/**
 * Bridge, pair and, with addressing, everything on layer 3 but masquerading and forwarding. Registers its own undoing.
 * @param mac hardware address that the container's interface is to have
 */
export function attach(
  call: Call<BridgeConf>,
  addressing: Addressing | undefined,
  mac: string | undefined,
): Attached {
  const { conf } = call;
  const attached = connect(call, addressing, mac);
  keepOutOfIpv6(attached.host);
  // Before the interface is up: nothing gets out unchecked.
  if (conf.macspoofchk) restrict(call, attached);
  if (addressing) {
    configureContainer(call, attached.container, addressing, conf.enabledad);
  } else if (!conf.disableContainerInterface) {
    setLink(call.container, attached.container.index, { up: true });
  }
  return attached;
}

/** What has to work for packets to pass, from the container on. */
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

/** Under the bridge's lock, so that nobody of ours removes the bridge between its making and its first port. */
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
        const hasPort = conf.vlan !== 0 && gateways.length > 0;
        const gatewayPort = hasPort ? ensureGatewayPort(call, bridge) : undefined;
        const target = ensureGateways(call, gatewayPort ?? bridge, gateways);
        const pair = createPort(call, bridge, mac);
        if (gatewayPort) return { ...pair, bridge: getLink(host, bridge.index), gatewayPort: target };
        const current = isOurs(target) ? target : keepMac(host, target, gateways.length > 0);
        return { ...pair, bridge: current, gatewayPort };
      } catch (thrown) {
        // A foreign program may have removed the bridge under our hands.
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
    mtu: conf.mtu,
    mac,
  });
  call.onFailure(`delete link "${pair.host.name}"`, () => removeLink(host, pair.host.index));
  const vlans = planVlans(conf);
  if (vlans) setPortVlans(host, conf, pair.host, vlans);
  return pair;
}

/**
 * A port of a bridge needs no addresses. The kernel would give it some, with routes and groups that it goes through
 * whenever any interface of the host comes or goes: with a thousand containers that is most of the time of an ADD.
 */
function keepOutOfIpv6({ name }: Link): void {
  trySysctl(`net/ipv6/conf/${name}/accept_ra`, '0');
  trySysctl(`net/ipv6/conf/${name}/disable_ipv6`, '1');
}

function restrict(call: Call<BridgeConf>, { host, container }: Pair): void {
  const owner = attachmentOf(call);
  call.onFailure('lift the restriction on hardware addresses', () => removeMacspoof(call.hostNft, owner));
  ensureMacspoof(call.hostNft, owner, host.name, container.mac ?? '');
}
