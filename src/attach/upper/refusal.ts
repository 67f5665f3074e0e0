// Why did the kernel refuse a device on top of the master?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isNetlinkError } from '../../netlink/errors.ts';
import { type Link, listLinks } from '../../netlink/rtnl/link.ts';
import type { UpperKind } from '../../netlink/rtnl/upper.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import { Errno } from '../../sys/errno.ts';

/** The lower device, the socket of its namespace, and the kind of device that was refused. */
export interface RefusedUpper {
  readonly lower: Link;
  readonly socket: NetlinkSocket;
  readonly kind: UpperKind;
}

/**
 * A sentence in place of the kernel's number. The kernel counts all children of a master, also those in other namespaces, which
 * cannot be listed from here.
 * @returns what to throw: a CniError 7, or the kernel's own refusal
 */
export function explainRefusal(thrown: unknown, refused: RefusedUpper): unknown {
  const why = whyRefused(thrown, refused);
  if (why === undefined) return thrown;
  const { lower, kind } = refused;
  return new CniError(
    ErrorCode.invalidConfig,
    `Cannot create a ${kind} interface on master "${lower.name}": ${why}`,
    { cause: thrown, details: (thrown as Error).message },
  );
}

function whyRefused(thrown: unknown, { lower, socket, kind }: RefusedUpper): string | undefined {
  if (isNetlinkError(thrown, Errno.EBUSY)) {
    if (lower.master) return `it is a port of "${nameOf(socket, lower.master)}"; use that as master`;
    const other = { macvlan: 'ipvlan', macvtap: 'ipvlan', ipvlan: 'macvlan', vlan: undefined }[kind];
    if (other === undefined) return undefined;
    return `it is in use by another driver; interfaces of kind macvlan and ipvlan exclude each other on one master, so delete those of kind ${other} or use another master`;
  }
  if (isNetlinkError(thrown, Errno.EINVAL) && kind === 'macvlan') {
    return 'it is not an Ethernet device, or mode "passthru" is involved, which allows one interface for each master; delete the others or use another master';
  }
  if (isNetlinkError(thrown, Errno.EEXIST) && kind === 'vlan') {
    return 'it has this VLAN already; two containers cannot share one VLAN of a master: use plugin bridge with "vlan", or macvlan on a VLAN device of the host';
  }
  if (isNetlinkError(thrown, Errno.EOPNOTSUPP)) {
    return `this kernel has no devices of kind ${kind}, or the master does not support them; load module ${kind === 'vlan' ? '8021q' : kind}`;
  }
  return undefined;
}

function nameOf(socket: NetlinkSocket, index: number): string {
  return listLinks(socket).find(link => link.index === index)?.name ?? `index ${index}`;
}
