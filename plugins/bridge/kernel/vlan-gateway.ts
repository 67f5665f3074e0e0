// Which interface carries the gateway of a VLAN?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { listBridgePorts } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import {
  createLink,
  findLink,
  getLink,
  type Link,
  removeLink,
  setLink,
} from '../../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../../src/netlink/rtnl/link-attrs.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { trySysctl } from '../../../src/sys/sysctl.ts';
import { type BridgeConf, gatewayPortName } from '../config.ts';
import { nativeVlan } from '../plan.ts';
import { GATEWAY_PORT_ALIAS, withBridgeLock } from './bridge.ts';
import { setPortVlans } from './vlan.ts';

/**
 * Returns the interface that carries the gateway of a VLAN: one end of a veth pair on the host, whose other end is a port of the
 * bridge in that VLAN. An existing one is used if it leads there. Registers its own undo steps. Call under `withBridgeLock`.
 * @param onFailure where it registers them
 * @throws CniError 7 when a device of that name leads elsewhere
 */
export function ensureGatewayPort(call: Call<BridgeConf>, bridge: Link, onFailure: Call['onFailure']): Link {
  const { conf, host } = call;
  const name = gatewayPortName(conf);
  const existing = findLink(host, name);
  if (existing === undefined) return createGatewayPort(call, bridge, name, onFailure);
  const problem = findGatewayProblem(host, bridge, existing, conf.vlan);
  if (problem) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "${name}" for the gateway of VLAN ${conf.vlan}: ${problem}`,
    );
  }
  if ((existing.flags & IFF_UP) === 0) {
    setLink(host, existing.index, { up: true });
    onFailure(`set "${name}" down`, () => setLink(host, existing.index, { up: false }));
  }
  return existing;
}

/** Why an interface cannot carry the gateway, in human-readable form; undefined when it can. */
export function findGatewayProblem(
  host: NetlinkSocket,
  bridge: Link,
  link: Link,
  vlan: number,
): string | undefined {
  // A manual set-up: the bridge itself is in the VLAN, and this is a VLAN device on top of it.
  if (link.kind === 'vlan' && link.peer === bridge.index) return undefined;
  if (link.kind !== 'veth') return `it is of kind "${link.kind}"`;
  const port = listBridgePorts(host, bridge.index).find(({ index }) => index === link.peer);
  if (port === undefined) return `its other end is not a port of bridge "${bridge.name}"`;
  const native = port.vlans.find(({ pvid }) => pvid)?.first;
  return native === vlan ? undefined : `its other end is in VLAN ${native ?? 'none'}`;
}

function createGatewayPort(
  call: Call<BridgeConf>,
  bridge: Link,
  name: string,
  onFailure: Call['onFailure'],
): Link {
  const { conf, host } = call;
  const port = `veth${Buffer.from(crypto.getRandomValues(new Uint8Array(4))).toString('hex')}`;
  const { mtu } = bridge;
  createLink(host, { name: port, kind: 'veth', master: bridge.index, mtu, peer: { name, mtu } });
  onFailure(`remove "${name}"`, () =>
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
  setLink(host, outer.index, { up: true, alias: GATEWAY_PORT_ALIAS });
  setLink(host, inner.index, { up: true, alias: GATEWAY_PORT_ALIAS });
  return { ...inner, flags: inner.flags | IFF_UP };
}

/** Removes what a failed ADD created, unless another container is already in the VLAN. */
function removeFailedPort(host: NetlinkSocket, bridge: Link, name: string, vlan: number): void {
  const gateway = findLink(host, name);
  if (gateway === undefined) return;
  const others = listBridgePorts(host, bridge.index).filter(({ index }) => index !== gateway.peer);
  const used = others.some(({ vlans }) => vlans.some(({ first, last }) => first <= vlan && vlan <= last));
  if (!used) removeLink(host, gateway.index);
}
