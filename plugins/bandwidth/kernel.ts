// How are the planned limits applied to a device, and how are they verified?
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { askAll } from '../../src/netlink/ask.ts';
import { isNetlinkError } from '../../src/netlink/errors.ts';
import { type Link, linkQuestion } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import { findQdisc, QDISC_GONE, qdiscQuestion } from '../../src/netlink/rtnl/qdisc.ts';
import type { NetlinkSocket, Request } from '../../src/netlink/socket.ts';
import { ensureIfb, ifbNamesOf, ownAmong } from './ifb.ts';
import type { Direction, Shaping } from './plan.ts';
import { findQueueDifference, queueRemovals, queueRequests } from './queue.ts';
import { findRedirectDifference, redirectRemovals, redirectRequests } from './redirect.ts';
import type { ShapedDevice } from './shaped-device.ts';

/** The IFB device through which the packets pass that the device receives, and those to which no redirect leads any longer. */
export interface Detour {
  readonly ifb?: Link;
  readonly unused: readonly Link[];
}

/**
 * Limits both directions, and removes the limit of a direction that is unlimited. A device can only delay what it sends, so
 * packets that it receives are redirected through an IFB device, which has its queue before the first packet arrives.
 */
export function applyShaping(device: ShapedDevice, attachment: AttachmentId, shaping: Shaping): Detour {
  const { socket, link, sends, netns } = device;
  const [sent, received] = [shaping[sends], shaping[opposite(sends)]];
  const { root, hook, ifbs: present } = lookAt(device, attachment);
  // Errors are thrown before anything is changed.
  const queue = sent ? queueRequests(socket, link, root, sent) : queueRemovals(socket, root);
  if (!received) {
    const ifbs = ownAmong(present, attachment);
    socket.requestAll(queue);
    removeAll(socket, redirectRemovals(socket, link, hook, ifbs));
    return { unused: ifbs };
  }
  const { link: ifb, isNew, settings } = ensureIfb({ socket, netns, attachment, mtu: link.mtu, present });
  const held = isNew ? undefined : findQdisc(socket, ifb.index, 'root');
  socket.requestAll([
    ...queue,
    ...settings,
    ...queueRequests(socket, ifb, held, received),
    ...redirectRequests(socket, link, hook, ifb),
  ]);
  return { ifb, unused: [] };
}

/** Compares the kernel with {@link applyShaping}. @throws Error saying what was expected and what was found */
export function verifyShaping(device: ShapedDevice, attachment: AttachmentId, shaping: Shaping): void {
  const { socket, link, sends } = device;
  const receives = opposite(sends);
  const [sent, received] = [shaping[sends], shaping[receives]];
  const { root, hook, ifbs } = lookAt(device, attachment);
  if (sent) refuseIf(sends, link, findQueueDifference(socket, root, sent));
  if (!received) return;
  const [ifb] = ownAmong(ifbs, attachment);
  if (ifb === undefined) throw differs(receives, link, 'its IFB device does not exist');
  if (!(ifb.flags & IFF_UP)) refuseIf(receives, ifb, 'the device is down');
  refuseIf(receives, ifb, findQueueDifference(socket, findQdisc(socket, ifb.index, 'root'), received));
  refuseIf(receives, link, findRedirectDifference(socket, link, hook, ifb));
}

/**
 * Removes what {@link applyShaping} added to a device. The IFB devices themselves may already be gone; removing them is up to the
 * caller.
 */
export function removeShaping({ socket, link }: ShapedDevice, ifbs: readonly Link[]): void {
  const [root, hook] = askAll(socket, hooksOf(link));
  removeAll(socket, [...queueRemovals(socket, root), ...redirectRemovals(socket, link, hook, ifbs)]);
}

function opposite(direction: Direction): Direction {
  return direction === 'ingress' ? 'egress' : 'ingress';
}

/** Reads the root qdisc and the ingress hook of a device, and the devices with the attachment's names. */
function lookAt({ socket, link }: ShapedDevice, attachment: AttachmentId) {
  const [first, second] = ifbNamesOf(attachment);
  const questions = [...hooksOf(link), linkQuestion(first), linkQuestion(second)] as const;
  const [root, hook, ...ifbs] = askAll(socket, questions);
  return { root, hook, ifbs };
}

function hooksOf({ index }: Link) {
  return [qdiscQuestion({ index, at: 'root' }), qdiscQuestion({ index, at: 'ingress' })] as const;
}

/** Missing ones are ignored. */
function removeAll(socket: NetlinkSocket, requests: readonly Request[]): void {
  for (const outcome of socket.attemptAll(requests)) {
    if (outcome instanceof Error && !isNetlinkError(outcome, ...QDISC_GONE)) throw outcome;
  }
}

function refuseIf(direction: Direction, device: Link, state: string | undefined): void {
  if (state !== undefined) throw differs(direction, device, state);
}

function differs(direction: Direction, device: Link, state: string): Error {
  return new Error(`Cannot confirm the ${direction} limit on "${device.name}": ${state}`);
}
