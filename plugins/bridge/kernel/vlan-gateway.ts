// Where does the gateway of a VLAN live, and when does that place go?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import type { Cidr } from '../../../src/net/cidr.ts';
import { type BridgePort, listBridgePorts } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import {
  createLink,
  findLink,
  getLink,
  type Link,
  removeLink,
  setLink,
} from '../../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../../src/netlink/rtnl/link-header.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { trySysctl } from '../../../src/sys/sysctl.ts';
import { type BridgeConf, gatewayPortName } from '../config.ts';
import { nativeVlan } from '../vlans.ts';
import { hasForeignAddress } from './gateway.ts';
import { withBridgeLock } from './lock.ts';
import { setPortVlans } from './vlan.ts';

/** Alias of both ends of pairs that this link created to carry a VLAN's gateway. */
const CREATED_BY_US = 'catena:gateway';

/**
 * The interface that carries the gateway of a VLAN: one end of a veth pair on the host, whose other end is a port of
 * the bridge in that VLAN. An existing one is used if it leads there. Registers its own undoing; to be called under
 * `withBridgeLock`.
 * @throws CniError 7 when a link of that name leads elsewhere
 */
export function ensureGatewayPort(call: Call<BridgeConf>, bridge: Link): Link {
  const { conf, host } = call;
  const name = gatewayPortName(conf);
  const existing = findLink(host, name);
  if (existing === undefined) return createGatewayPort(call, bridge, name);
  const problem = findGatewayProblem(host, bridge, existing, conf.vlan);
  if (problem) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "${name}" for the gateway of VLAN ${conf.vlan}: ${problem}`,
    );
  }
  if ((existing.flags & IFF_UP) === 0) {
    setLink(host, existing.index, { up: true });
    call.onFailure(`set "${name}" down`, () => setLink(host, existing.index, { up: false }));
  }
  return existing;
}

/** What keeps an interface from being the gateway's place, in words; undefined when nothing does. */
export function findGatewayProblem(
  host: NetlinkSocket,
  bridge: Link,
  link: Link,
  vlan: number,
): string | undefined {
  // The way to do it by hand: the bridge itself is in the VLAN, and this is a device upon it.
  if (link.kind === 'vlan' && link.peer === bridge.index) return undefined;
  if (link.kind !== 'veth') return `it is of kind "${link.kind}"`;
  const port = listBridgePorts(host, bridge.index).find(({ index }) => index === link.peer);
  if (port === undefined) return `its other end is no port of bridge "${bridge.name}"`;
  const native = port.vlans.find(({ pvid }) => pvid)?.first;
  return native === vlan ? undefined : `its other end is in VLAN ${native ?? 'none'}`;
}

/**
 * Removes the gateway ports, made by this link, of VLANs that no other port of the bridge is in.
 * @param ours addresses that come from us; undefined when that is not known
 * @returns the ports that are left
 */
export function removeUnusedGatewayPorts(
  host: NetlinkSocket,
  bridge: Link,
  ports: readonly BridgePort[],
  ours: readonly Cidr[] | undefined,
): BridgePort[] {
  const natives = new Set(ports.flatMap(({ vlans }) => vlans.filter(({ pvid }) => pvid)).map(v => v.first));
  let left = [...ports];
  for (const vlan of natives) {
    const gateway = findLink(host, gatewayPortName({ bridge: bridge.name, vlan }));
    if (gateway?.attrs.alias !== CREATED_BY_US) continue;
    const others = left.filter(({ index }) => index !== gateway.peer);
    const used = others.some(({ vlans }) => vlans.some(({ first, last }) => first <= vlan && vlan <= last));
    if (used || hasForeignAddress(host, gateway, ours)) continue;
    removeLink(host, gateway.index);
    left = others;
  }
  return left;
}

function createGatewayPort(call: Call<BridgeConf>, bridge: Link, name: string): Link {
  const { conf, host } = call;
  const port = `veth${Buffer.from(crypto.getRandomValues(new Uint8Array(4))).toString('hex')}`;
  const { mtu } = bridge;
  createLink(host, { name: port, kind: 'veth', master: bridge.index, mtu, peer: { name, mtu } });
  call.onFailure(`remove "${name}"`, () =>
    withBridgeLock(bridge.name, () => removeFailedPort(host, bridge, name, conf.vlan)),
  );
  trySysctl(`net/ipv6/conf/${port}/accept_ra`, '0');
  trySysctl(`net/ipv6/conf/${name}/accept_ra`, '0');
  trySysctl(`net/ipv6/conf/${name}/accept_dad`, '0');
  const outer = getLink(host, port);
  setPortVlans(host, conf, outer, {
    leavesDefault: !conf.preserveDefaultVlan,
    vlans: [nativeVlan(conf.vlan)],
  });
  const inner = getLink(host, name);
  setLink(host, outer.index, { up: true, alias: CREATED_BY_US });
  setLink(host, inner.index, { up: true, alias: CREATED_BY_US });
  return { ...inner, flags: inner.flags | IFF_UP };
}

/** What a failed ADD created goes, unless another container is in the VLAN by now. */
function removeFailedPort(host: NetlinkSocket, bridge: Link, name: string, vlan: number): void {
  const gateway = findLink(host, name);
  if (gateway === undefined) return;
  const others = listBridgePorts(host, bridge.index).filter(({ index }) => index !== gateway.peer);
  const used = others.some(({ vlans }) => vlans.some(({ first, last }) => first <= vlan && vlan <= last));
  if (!used) removeLink(host, gateway.index);
}
