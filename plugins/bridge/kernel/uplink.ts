// How does a device of the host become a port of the bridge, and when does it stop being one?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { renderCidr } from '../../../src/net/cidr.ts';
import { listAddresses, RT_SCOPE_LINK } from '../../../src/netlink/rtnl/addr.ts';
import { addPortVlans, listBridgePorts } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import { findLink, type Link, setLink } from '../../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../../src/netlink/rtnl/link-attrs.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import type { BridgeConf } from '../config.ts';
import { planVlans } from '../plan.ts';
import { withBridgeLock } from './bridge.ts';

/**
 * Makes the configured uplink a port of the bridge, up, and a tagged member of the container's VLANs. Does nothing without one, or if it is
 * a port already. Registers its own undo step. Call under `withBridgeLock`.
 * @throws CniError 7 when the device cannot be the bridge's
 */
export function ensureUplink(call: Call<BridgeConf>, bridge: Link): void {
  const { conf, host } = call;
  if (!conf.uplinkInterface) return;
  const uplink = requireUplink(host, conf, bridge);
  if (uplink.master !== bridge.index) {
    const known = new Set(listBridgePorts(host, bridge.index).map(({ index }) => index));
    call.onFailure(`take "${uplink.name}" out of bridge "${bridge.name}"`, () =>
      withBridgeLock(bridge.name, () => releaseUplink(host, uplink, bridge, known)),
    );
    setLink(host, uplink.index, { master: bridge.index, up: true });
  } else if (!(uplink.flags & IFF_UP)) {
    setLink(host, uplink.index, { up: true });
  }
  const vlans = planVlans(conf)?.vlans ?? [];
  // The default VLAN stays as it is: untagged frames of the network outside.
  addPortVlans(
    host,
    uplink.index,
    vlans
      .filter(({ first, pvid }) => !(pvid && first === 1))
      .map(vlan => ({ ...vlan, pvid: false, untagged: false })),
  );
}

/**
 * The uplink, if the bridge can have it. A device with addresses of its own is refused: as a port it would stop to answer for them, and a node
 * whose address is there would be cut off.
 * @param bridge undefined if it does not exist yet
 * @throws CniError 7
 */
export function requireUplink(
  host: NetlinkSocket,
  { bridge: name, uplinkInterface = '' }: BridgeConf,
  bridge: Link | undefined,
): Link {
  const link = findLink(host, uplinkInterface);
  const problem = link ? findProblem(host, link, bridge) : 'there is no such device';
  if (link && problem === undefined) return link;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot use "${uplinkInterface}" as uplink of bridge "${name}": ${problem}`,
  );
}

function findProblem(host: NetlinkSocket, link: Link, bridge: Link | undefined): string | undefined {
  if (bridge && link.index === bridge.index) return 'it is the bridge itself';
  if (bridge && link.master === bridge.index) return undefined;
  if (link.master !== 0) {
    return `it belongs to "${findLink(host, link.master)?.name ?? link.master}"; release it first`;
  }
  const [own] = listAddresses(host, link.index).filter(({ scope }) => scope < RT_SCOPE_LINK);
  return own && `it has address ${renderCidr(own.cidr)}; move that to the bridge first, or the node loses it`;
}

/** Containers that joined before the undo rely on the uplink. */
function releaseUplink(host: NetlinkSocket, uplink: Link, bridge: Link, known: ReadonlySet<number>): void {
  const current = findLink(host, uplink.index);
  if (current?.master !== bridge.index) return;
  const joined = listBridgePorts(host, bridge.index).some(
    ({ index }) => index !== uplink.index && !known.has(index),
  );
  if (!joined) setLink(host, uplink.index, { master: 0, up: (uplink.flags & IFF_UP) !== 0 });
}
