// How is a device made on top of the master, directly in the container?

import { renderOwner } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isNetlinkError } from '../../netlink/errors.ts';
import {
  ALIAS_MAX_BYTES,
  findLink,
  getLink,
  type Link,
  listLinks,
  removeLink,
  setLinkRequest,
} from '../../netlink/rtnl/link.ts';
import { createUpper, type NewUpper, type UpperKind } from '../../netlink/rtnl/upper.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import type { Call } from '../../plugin/define.ts';
import { interimName } from '../../plugin/first-names.ts';
import { Errno } from '../../sys/errno.ts';
import { interfaceExists } from '../free-name.ts';
import { attachmentOf } from '../owner.ts';
import type { Master } from './master.ts';

/** The properties of the new device; it gets the name of the attachment's interface unless another is given. */
type UpperPlan<K extends UpperKind> = Omit<NewUpper<K>, 'lower' | 'netnsFd' | 'name'> & {
  readonly name?: string;
};

/**
 * Creates the device in the container, down, with the attachment as its alias, and registers its removal.
 *
 * It is made under a name derived from the attachment, and gets name and alias in one request: so DEL recognises it whenever ADD was
 * killed. Another reason is that the kernel, before Linux 6.15, refuses a name that a device of the lower device's namespace has, as a
 * host has an `eth0`.
 * @throws CniError 4 when the container has an interface of that name, 7 when the master cannot carry the device
 */
export function makeUpper<K extends UpperKind>(call: Call, master: Master, plan: UpperPlan<K>): Link {
  const { container } = call;
  const name = plan.name ?? call.env.ifname;
  const interim = interimName(attachmentOf(call));
  create(call, master, plan, interim);
  let which: string | number = interim;
  call.onFailure(`delete device "${name}"`, () => removeLink(container, which));
  const link = getLink(container, interim);
  which = link.index;
  const alias = renderOwner(attachmentOf(call), ALIAS_MAX_BYTES);
  try {
    container.requestAll([setLinkRequest(link.index, { name, alias })]);
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.EEXIST)) throw interfaceExists(name, call.containerNetns, thrown);
    throw thrown;
  }
  return { ...link, name };
}

function create<K extends UpperKind>(
  { container, containerNetns: netns }: Call,
  { link: lower, socket }: Master,
  plan: UpperPlan<K>,
  name: string,
): void {
  const netnsFd = socket === container ? undefined : netns.fd;
  const upper = { ...plan, name, lower: lower.index, netnsFd };
  try {
    createUpper(socket, upper);
  } catch (thrown) {
    if (!isNetlinkError(thrown, Errno.EEXIST) || findLink(container, name) === undefined)
      throw explainRefusal(thrown, { lower, socket, kind: plan.kind });
    // An ADD that was killed has left it; the runtime never runs two for one attachment.
    removeLink(container, name);
    createUpper(socket, upper);
  }
}

/** The lower device, the socket of its namespace, and the kind of device that was refused. */
interface RefusedUpper {
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
