// How does the bridge come to be, get its gateway addresses, and go?
import { mkdirSync } from 'node:fs';
import { runDir } from '../../../src/cni/directories.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { type Cidr, cidrsOverlap, renderCidr } from '../../../src/net/cidr.ts';
import { sameIp } from '../../../src/net/ip.ts';
import { renderMac } from '../../../src/net/mac.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import { addAddress, listAddresses, RT_SCOPE_LINK, removeAddress } from '../../../src/netlink/rtnl/addr.ts';
import {
  createLink,
  findLink,
  getLink,
  type Link,
  listLinks,
  removeLink,
  setLink,
} from '../../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../../src/netlink/rtnl/link-header.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { withFlock } from '../../../src/sys/flock.ts';
import { closeNetns, openOwnNetns } from '../../../src/sys/netns.ts';
import { trySysctl } from '../../../src/sys/sysctl.ts';

/** Alias of bridges that this link created and may therefore remove when their last port goes. */
const CREATED_BY_US = 'catena:bridge';
/** Holders do a few kernel requests; the longest, removing a bridge, waits for grace periods. */
const LOCK_DEADLINE_MS = 20_000;

/**
 * Runs a step in which the bridge must neither appear nor go by another hand of ours: attaching the first port and
 * removing the bridge after the last one would otherwise cross.
 */
export function withBridgeLock<T>(name: string, step: () => T): T {
  const dir = runDir();
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const own = openOwnNetns();
  closeNetns(own);
  return withFlock(`${dir}/bridge-${own.ino}-${name}.lock`, LOCK_DEADLINE_MS, step, 0o600);
}

/**
 * The bridge, up; created when missing, with a hardware address of its own so that it does not change with its ports.
 * Same as: `ip link add <name> type bridge && ip link set <name> up`
 */
export function ensureBridge(
  socket: NetlinkSocket,
  { name, mtu, promisc }: { name: string; mtu: number; promisc: boolean },
): { link: Link; created: boolean } {
  const existing = findLink(socket, name);
  const link = existing ?? createBridge(socket, name, mtu);
  if (link.kind !== 'bridge') {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "${name}" as bridge: a link of that name exists and is ${link.kind ? `of kind ${link.kind}` : 'no bridge'}`,
    );
  }
  const down = (link.flags & IFF_UP) === 0;
  if (down || promisc) setLink(socket, link.index, { up: true, ...(promisc ? { promisc } : {}) });
  return { link, created: existing === undefined };
}

/**
 * Puts gateway addresses on the bridge. Only an overlapping subnet is a conflict, so several range sets and foreign
 * addresses live side by side, where the reference allows one IPv4 address.
 * @returns the addresses that were not there before
 */
export function ensureGateways(
  socket: NetlinkSocket,
  bridge: Link,
  gateways: readonly Cidr[],
  force: boolean,
): Cidr[] {
  const present = listAddresses(socket, bridge.index);
  const missing = gateways.filter(gateway => !present.some(({ cidr }) => sameCidr(cidr, gateway)));
  for (const gateway of missing) {
    for (const { cidr, scope } of present) {
      // The kernel's own link-local address may share fe80::/64 with a gateway.
      if (scope === RT_SCOPE_LINK || !cidrsOverlap(cidr, gateway)) continue;
      if (!force) {
        throw new CniError(
          ErrorCode.invalidConfig,
          `Cannot add gateway ${renderCidr(gateway)} to bridge "${bridge.name}": it has ${renderCidr(cidr)}, whose subnet overlaps`,
          { details: 'set "forceAddress": true to replace that address' },
        );
      }
      removeAddress(socket, bridge.index, cidr);
    }
  }
  const added = missing.filter(gateway => addUnlessPresent(socket, bridge, gateway));
  // An explicit address pins the hardware address of a bridge that others made; ours is pinned from birth.
  if (added.length && bridge.mac && bridge.mac !== '00:00:00:00:00:00')
    setLink(socket, bridge.index, { mac: bridge.mac });
  return added;
}

/**
 * Removes the bridge if this link created it, no port is left and nobody else gave it an address. To be called under
 * {@link withBridgeLock}.
 * @param ours addresses that come from us; undefined when that is not known
 */
export function removeUnusedBridge(socket: NetlinkSocket, name: string, ours?: readonly Cidr[]): void {
  const bridge = findLink(socket, name);
  if (bridge?.attrs.alias !== CREATED_BY_US) return;
  if (listLinks(socket).some(({ master }) => master === bridge.index)) return;
  const foreign = listAddresses(socket, bridge.index).some(
    ({ cidr, scope }) =>
      scope !== RT_SCOPE_LINK && ours !== undefined && !ours.some(own => sameCidr(own, cidr)),
  );
  if (!foreign) removeLink(socket, bridge.index);
}

function createBridge(socket: NetlinkSocket, name: string, mtu: number): Link {
  try {
    createLink(socket, { name, kind: 'bridge', mac: randomMac(), ...(mtu ? { mtu } : {}) });
  } catch (thrown) {
    // Somebody else was faster: then it is theirs.
    if (isNetlinkError(thrown, Errno.EEXIST)) return getLink(socket, name);
    throw thrown;
  }
  trySysctl(`net/ipv6/conf/${name}/accept_ra`, '0');
  // While its link-local address is checked for duplicates (a second) the host could not ask for containers' neighbours.
  trySysctl(`net/ipv6/conf/${name}/accept_dad`, '0');
  const link = getLink(socket, name);
  setLink(socket, link.index, { up: true, alias: CREATED_BY_US });
  return { ...link, flags: link.flags | IFF_UP };
}

function addUnlessPresent(socket: NetlinkSocket, bridge: Link, gateway: Cidr): boolean {
  try {
    // The bridge is the only one who could claim the gateway's address: nothing to wait for.
    addAddress(socket, bridge.index, gateway, { nodad: true });
    return true;
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.EEXIST)) return false;
    throw thrown;
  }
}

function sameCidr(a: Cidr, b: Cidr): boolean {
  return a.prefix === b.prefix && sameIp(a.ip, b.ip);
}

/** A locally administered unicast address. */
function randomMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return renderMac(bytes);
}
