// How is a device moved between host and container?
//
// The kernel takes namespace and new name in one request. No other program sees the device in between under a name that it does
// not keep, and none can rename it there: the reference uses a temporary namespace for that.
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { findLink, getLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { isNetlinkError, type NetlinkSocket } from '../../src/netlink/socket.ts';
import { Errno } from '../../src/sys/errno.ts';
import { closeNetns, type Netns, openOwnNetns } from '../../src/sys/netns.ts';
import type { Inside } from './identity.ts';

/**
 * Moves a device into the container, where it is down. Its alias keeps the name that it had.
 * Same as: `ip link set <device> alias <device>`, then `ip link set <device> netns <netns> name <ifname>`
 */
export function moveIn(
  host: NetlinkSocket,
  container: NetlinkSocket,
  link: Link,
  to: { readonly netns: Netns; readonly ifname: string },
): Link {
  setLink(host, link.index, { alias: link.name });
  setLink(host, link.index, { netnsFd: to.netns.fd, name: to.ifname });
  return getLink(container, to.ifname);
}

/**
 * Moves a device back to the host under its old name, where it is down.
 * @param isIt whether what came is the device: the container may have put another in its place since it was found
 * @throws CniError 11 when the host has another interface of that name, or another device came; the container then has it, unchanged
 */
export function moveOut(
  host: NetlinkSocket,
  { socket: container, netns }: Inside,
  link: Link,
  { name, ifname }: { readonly name: string; readonly ifname: string },
  isIt: (found: Link) => boolean,
): Link {
  if (findLink(host, name)) throw nameTaken(name, ifname);
  setLink(container, link.index, { up: false });
  const home = openOwnNetns();
  try {
    // The name that it has in the container may be in use on the host, and what is seen there first should be its own.
    renameIfFree(container, link.index, name);
    setLink(container, link.index, { netnsFd: home.fd, name });
  } catch (thrown) {
    putBack(container, link);
    if (isNetlinkError(thrown, Errno.EEXIST)) throw nameTaken(name, ifname, thrown);
    throw thrown;
  } finally {
    closeNetns(home);
  }
  const came = getLink(host, name);
  if (isIt(came)) return came;
  setLink(host, came.index, { netnsFd: netns.fd, name: link.name });
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot return device "${ifname}" to the host as "${name}": the container put another device in its place while it was moved; run DEL again`,
  );
}

/**
 * Gives a device on the host its name, which it lost when its namespace ended.
 * @throws CniError 11 when another interface has that name
 */
export function rename(host: NetlinkSocket, link: Link, name: string): Link {
  if (link.name === name) return link;
  if (findLink(host, name)) throw nameTaken(name, link.name);
  // Before Linux 6.2 only a device that is down can be renamed.
  setLink(host, link.index, { up: false });
  setLink(host, link.index, { name });
  return getLink(host, link.index);
}

/** In the container, another interface may have the name that the device has on the host. */
function renameIfFree(container: NetlinkSocket, index: number, name: string): void {
  try {
    setLink(container, index, { name });
  } catch (thrown) {
    if (!isNetlinkError(thrown, Errno.EEXIST)) throw thrown;
  }
}

/** The container keeps the device as it was: a later DEL tries again. */
function putBack(container: NetlinkSocket, { index, name }: Link): void {
  try {
    setLink(container, index, { name });
    setLink(container, index, { up: true });
  } catch {
    // The first error says more.
  }
}

function nameTaken(name: string, ifname: string, cause?: unknown): CniError {
  return new CniError(
    ErrorCode.tryAgainLater,
    `Cannot return device "${ifname}" to the host as "${name}": another interface of the host has that name; rename it and run DEL again`,
    { cause },
  );
}
