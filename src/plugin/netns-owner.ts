// Which container does the namespace at a path belong to?
//
// Paths are used again: a named namespace is deleted and made again, a process id is given to another process. A late DEL would
// then work on another container's interface of the same name. Three things tell the owner: the alias that our plugins set on
// the host's end of a pair, or on a device without such an end, what the result of the ADD says of the interface, and the aliases
// of other interfaces of the namespace. If none of them tells, the runtime is trusted.
import {
  type AttachmentId,
  findOwner,
  hostEndName,
  interimName,
  isSameContainer,
  renderOwner,
} from '../cni/attachment.ts';
import type { Result } from '../cni/result.ts';
import { NO_MAC } from '../net/interface.ts';
import { findCidr, type Ip, isLinkLocal, renderCidr, sameIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { ALIAS_MAX_BYTES, findOtherEnds, type Link, listLinks } from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';

/** The attachment that a call is for, and the namespace at its path. */
interface Visit {
  readonly owner: AttachmentId;
  readonly prevResult: Result | undefined;
  /** rtnetlink in the namespace of the plugin, and in the one at the path. */
  readonly host: NetlinkSocket;
  readonly container: NetlinkSocket;
  /** A descriptor of the latter. */
  readonly netnsFd: number;
  /** Whether an attachment exists, as far as our plugins made it. */
  isAttached(named: AttachmentId): boolean;
}

/**
 * Human-readable evidence that the namespace has the interface of another attachment, not that of this one;
 * undefined if there is none.
 */
export function findStranger(visit: Visit): string | undefined {
  const { owner } = visit;
  const devices = listLinks(visit.container);
  const ends = findOtherEnds(visit.host, devices, visit.netnsFd);
  const noted = devices.flatMap(link => {
    const marked = link.kind === 'veth' ? ends.get(link.index) : link;
    const named = marked && (hasFirstName(marked, owner) ? owner : findOwner(marked.attrs.alias));
    if (named === undefined) return [];
    // A container can give its own devices any alias: one of an attachment that does not exist says nothing.
    const isForged =
      link.kind !== 'veth' &&
      !isSameContainer(named.containerId, owner.containerId) &&
      !visit.isAttached(named);
    return isForged ? [] : [{ link, named }];
  });
  const words = ({ link, named }: (typeof noted)[number]) =>
    `interface "${link.name}" in it belongs to container "${named.containerId}", interface "${named.ifname}" on network "${named.network}"`;
  const link = devices.find(({ name }) => name === owner.ifname);
  const end = link && ends.get(link.index);
  const proof = link && compareWithResult(visit, link, end);
  const at = noted.find(one => one.link === link);
  if (at) {
    const isExact = renderOwner(at.named, ALIAS_MAX_BYTES) === renderOwner(owner, ALIAS_MAX_BYTES);
    // A plugin that delegates has the interface made under network names that it chooses.
    const isSameInterface =
      isSameContainer(at.named.containerId, owner.containerId) && at.named.ifname === owner.ifname;
    const isByDelegate = isSameInterface && proof === 'same';
    return isExact || isByDelegate ? undefined : words(at);
  }
  // The container may have taken the name off, and given the device the alias of another.
  const isHidden = link === undefined && devices.some(one => isReported(visit, one));
  if (proof === 'same' || isHidden) return undefined;
  const isOwnContainer = noted.some(({ named }) => isSameContainer(named.containerId, owner.containerId));
  const [stranger] = noted;
  if (stranger && !isOwnContainer) return words(stranger);
  return proof === 'other'
    ? `interface "${owner.ifname}" in it is not the one in the result of its ADD`
    : undefined;
}

/** Kinds of devices that have the address of their master, as all others on it. */
const SHARED_MAC = ['ipvlan', 'vlan'];

/**
 * Whether a device of the container, whatever its name and alias, is the interface in the result: it has the hardware address, and if
 * others have that as well, an address of the result.
 */
export function isReported(
  { owner: { ifname }, prevResult, container }: Pick<Visit, 'owner' | 'prevResult' | 'container'>,
  link: Link,
): boolean {
  if (!link.mac || link.mac !== toldMac(prevResult, ifname)) return false;
  if (!SHARED_MAC.includes(link.kind)) return true;
  const addresses = new Set(prevResult?.ips?.map(({ address }) => address));
  return listAddresses(container, link.index).some(({ cidr }) => addresses.has(renderCidr(cidr)));
}

/** The hardware address that the result has for the container's interface; undefined without one. */
function toldMac(result: Result | undefined, ifname: string): string | undefined {
  const told = result?.interfaces?.find(one => one.name === ifname && one.sandbox)?.mac?.toLowerCase();
  return told === NO_MAC ? undefined : told || undefined;
}

/** Whether the device was made by an ADD of the attachment that was killed before it could set the alias. */
function hasFirstName({ name, attrs: { alias } }: Link, owner: AttachmentId): boolean {
  return !alias && (name === hostEndName(owner) || name === interimName(owner));
}

/**
 * Whether an interface is the one in the result. A container may change its hardware address, and a plugin may
 * have set it without reporting it. A different one is therefore not enough: the host's end or the addresses must differ too.
 */
function compareWithResult(
  { owner: { ifname }, prevResult, container }: Visit,
  link: Link,
  end: Link | undefined,
): 'same' | 'other' | undefined {
  const { interfaces = [], ips = [] } = prevResult ?? {};
  const told = toldMac(prevResult, ifname);
  if (told === undefined) return undefined;
  if (told === link.mac) return 'same';
  if (end) {
    const hostEnds = interfaces.filter(({ sandbox }) => !sandbox);
    const isTold = hostEnds.some(
      ({ name, mac }) => name === end.name && (!mac || mac.toLowerCase() === end.mac),
    );
    if (isTold) return 'same';
    if (hostEnds.some(({ name }) => name.startsWith('veth'))) return 'other';
  }
  const addresses: Ip[] = ips.flatMap(({ address }) => findCidr(address)?.ip ?? []);
  const present = listAddresses(container, link.index).flatMap(({ cidr }) =>
    // The kernel gives every interface one.
    isLinkLocal(cidr.ip) ? [] : [cidr.ip],
  );
  if (addresses.length === 0 || present.length === 0) return undefined;
  return present.some(ip => addresses.some(one => sameIp(one, ip))) ? undefined : 'other';
}
