// How does the bridge come to be, and how does it go?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import type { Cidr } from '../../../src/net/cidr.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import { listBridgePorts } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import {
  createLink,
  findLink,
  getLink,
  type Link,
  removeLink,
  setLink,
} from '../../../src/netlink/rtnl/link.ts';
import { IFF_LOWER_UP, IFF_PROMISC, IFF_UP } from '../../../src/netlink/rtnl/link-header.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { trySysctl } from '../../../src/sys/sysctl.ts';
import type { BridgeConf } from '../config.ts';
import { wantsFiltering } from '../vlans.ts';
import { hasForeignAddress } from './gateway.ts';
import { withBridgeLock } from './lock.ts';
import { isBridgeMac, randomBridgeMac } from './random-mac.ts';
import { ensureFiltering, refuseVlans, requireFiltering, vlanFilteringOf } from './vlan.ts';
import { removeUnusedGatewayPorts } from './vlan-gateway.ts';

/** Alias of bridges that this link created and may therefore remove when their last port goes. */
const CREATED_BY_US = 'catena:bridge';

/** True for a bridge that this link created, also when it was killed before it came to the alias. */
export function isOurs({ attrs: { alias }, mac }: Link): boolean {
  return alias === CREATED_BY_US || (!alias && isBridgeMac(mac));
}

/**
 * The bridge, up; created when missing, with a hardware address of its own so that it does not change with its ports.
 * An existing one keeps what it has. Registers its own undoing; to be called under `withBridgeLock`.
 * @throws CniError 7 when the name belongs to a link of another kind, 2 when VLANs are asked of a kernel without them
 * Same as: `ip link add <name> type bridge && ip link set <name> up`
 */
export function ensureBridge(call: Call<BridgeConf>): Link {
  const { conf, host } = call;
  const existing = findLink(host, conf.bridge);
  if (existing) return adoptBridge(call, existing);
  try {
    return createBridge(call);
  } catch (thrown) {
    // Somebody else was faster: then it is theirs.
    if (isNetlinkError(thrown, Errno.EEXIST)) return adoptBridge(call, getLink(host, conf.bridge));
    throw thrown;
  }
}

/**
 * Removes gateway ports of VLANs that nobody is in, and then the bridge, if this link created it, no port is left and
 * nobody else gave it an address. To be called under `withBridgeLock`.
 * @param ours addresses that come from us; undefined when that is not known
 */
export function removeUnusedBridge(socket: NetlinkSocket, name: string, ours?: readonly Cidr[]): void {
  const bridge = findLink(socket, name);
  if (bridge?.kind !== 'bridge') return;
  // Only a bridge that keeps VLANs apart has gateway ports.
  const filters = vlanFilteringOf(bridge) === 1;
  if (!filters && !isOurs(bridge)) return;
  // Listing ports takes the longer, the more containers there are; mostly there is no need to.
  if (!filters && bridge.flags & IFF_LOWER_UP) return;
  const ports = listBridgePorts(socket, bridge.index);
  const left = filters ? removeUnusedGatewayPorts(socket, bridge, ports, ours) : ports;
  if (isOurs(bridge) && left.length === 0 && !hasForeignAddress(socket, bridge, ours)) {
    removeLink(socket, bridge.index);
  }
}

/**
 * Refuses an existing link that cannot serve as the bridge.
 * @throws CniError 7, or 2 when VLANs are asked of a kernel without them
 */
export function requireBridge(conf: BridgeConf, link: Link): void {
  if (link.kind !== 'bridge') {
    const found = link.kind ? `of kind "${link.kind}"` : 'no bridge';
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "${link.name}" as bridge: a link of that name exists and is ${found}`,
    );
  }
  if (wantsFiltering(conf)) requireFiltering(conf, link, isOurs(link));
}

function createBridge(call: Call<BridgeConf>): Link {
  const { conf, host } = call;
  const { bridge: name, mtu, promiscMode } = conf;
  const vlanFiltering = wantsFiltering(conf) || undefined;
  try {
    createLink(host, { name, kind: 'bridge', mac: randomBridgeMac(), mtu: mtu || undefined, vlanFiltering });
  } catch (thrown) {
    if (vlanFiltering && isNetlinkError(thrown, Errno.EOPNOTSUPP)) throw refuseVlans(conf, thrown);
    throw thrown;
  }
  call.onFailure(`remove bridge "${name}"`, () => withBridgeLock(name, () => removeFailedBridge(host, name)));
  trySysctl(`net/ipv6/conf/${name}/accept_ra`, '0');
  // While its link-local address is checked for duplicates (a second) the host could not ask for containers' neighbours.
  trySysctl(`net/ipv6/conf/${name}/accept_dad`, '0');
  const { index } = getLink(host, name);
  setLink(host, index, { up: true, alias: CREATED_BY_US, ...(promiscMode ? { promisc: true } : {}) });
  return getLink(host, index);
}

function adoptBridge(call: Call<BridgeConf>, link: Link): Link {
  const { conf, host } = call;
  requireBridge(conf, link);
  if (wantsFiltering(conf)) ensureFiltering(call, link);
  const wanted = { up: true, ...(conf.promiscMode ? { promisc: true } : {}) };
  const before = {
    up: (link.flags & IFF_UP) !== 0,
    ...(conf.promiscMode ? { promisc: (link.flags & IFF_PROMISC) !== 0 } : {}),
  };
  if (JSON.stringify(wanted) === JSON.stringify(before)) return link;
  // Other containers that join meanwhile rely on it.
  const known = new Set(listBridgePorts(host, link.index).map(({ index }) => index));
  call.onFailure('set flags of the bridge back', () =>
    withBridgeLock(link.name, () => {
      const joined = listBridgePorts(host, link.index).some(({ index }) => !known.has(index));
      if (!joined) setLink(host, link.index, before);
    }),
  );
  setLink(host, link.index, wanted);
  return link;
}

/** What a failed ADD created goes, also when it did not come to the alias. */
function removeFailedBridge(host: NetlinkSocket, name: string): void {
  const bridge = findLink(host, name);
  if (bridge && listBridgePorts(host, bridge.index).length === 0) removeLink(host, bridge.index);
}
