// How is a device made on top of the master, directly in the container?
import { digestOf, renderOwner } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isNetlinkError, type NetlinkError } from '../../netlink/errors.ts';
import {
  ALIAS_MAX_BYTES,
  findLink,
  getLink,
  type Link,
  removeLink,
  setLinkRequest,
} from '../../netlink/rtnl/link.ts';
import { createUpper, type NewUpper, type UpperKind } from '../../netlink/rtnl/upper.ts';
import type { Call } from '../../plugin/define.ts';
import { Errno } from '../../sys/errno.ts';
import { interfaceExists } from '../free-name.ts';
import { type AttachmentCall, attachmentOf } from '../owner.ts';
import type { Master } from './master.ts';
import { explainRefusal } from './refusal.ts';

/** The properties of the new device; it gets the name of the attachment's interface unless another is given. */
export type UpperPlan<K extends UpperKind> = Omit<NewUpper<K>, 'lower' | 'netnsFd' | 'name'> & {
  readonly name?: string;
};

/**
 * Creates the device in the container, down, with the attachment as its alias, and registers its removal.
 *
 * One request is enough: the message names the lower device and the namespace. Before Linux 6.15 the kernel refuses it when the
 * namespace of the lower device has a device of the same name, as a host has an `eth0`. It is then made under a name derived
 * from the attachment and renamed, as the reference always does.
 * @throws CniError 4 when the container has an interface of that name, 7 when the master cannot carry the device
 */
export function makeUpper<K extends UpperKind>(call: Call, master: Master, plan: UpperPlan<K>): Link {
  const { container } = call;
  const name = plan.name ?? call.env.ifname;
  const made = create(call, master, { ...plan, name });
  let which: string | number = made;
  call.onFailure(`delete device "${name}"`, () => removeLink(container, which));
  const link = getLink(container, made);
  which = link.index;
  const alias = renderOwner(attachmentOf(call), ALIAS_MAX_BYTES);
  const naming = [setLinkRequest(link.index, { ...(made === name ? {} : { name }), alias })];
  try {
    container.requestAll(naming);
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.EEXIST)) throw interfaceExists(name, call.containerNetns, thrown);
    throw thrown;
  }
  return { ...link, name };
}

/** The name under which a device is made when its final name is taken on the host: at most fifteen characters, as the kernel's. */
export function interimName(call: AttachmentCall): string {
  return `new${digestOf(renderOwner(attachmentOf(call))).slice(-12)}`;
}

/** @returns the name under which the device was made */
function create<K extends UpperKind>(
  call: Call,
  { link: lower, socket }: Master,
  plan: UpperPlan<K> & { name: string },
): string {
  const { container, containerNetns: netns } = call;
  const upper = { ...plan, lower: lower.index, netnsFd: socket === container ? undefined : netns.fd };
  const attempt = (name: string): NetlinkError | undefined => {
    try {
      createUpper(socket, { ...upper, name });
      return undefined;
    } catch (thrown) {
      if (isNetlinkError(thrown, Errno.EEXIST)) return thrown;
      throw explainRefusal(thrown, { lower, socket, kind: plan.kind });
    }
  };
  const taken = attempt(plan.name);
  if (taken === undefined) return plan.name;
  if (findLink(container, plan.name)) throw interfaceExists(plan.name, netns, taken);
  // Of the two names only one can be taken on the host.
  if (findLink(socket, plan.name) === undefined)
    throw explainRefusal(taken, { lower, socket, kind: plan.kind });
  const interim = interimName(call);
  // An ADD that was killed may have left it; the runtime never runs two for one attachment.
  removeLink(container, interim);
  const again = attempt(interim);
  if (again) throw explainRefusal(again, { lower, socket, kind: plan.kind });
  return interim;
}

/** What an unusable plan says. */
export function refuse(why: string): CniError {
  return new CniError(ErrorCode.invalidConfig, `Cannot attach container: ${why}`);
}
