// How are the planned limits applied to the host's devices, and how are they verified?
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { askAll } from '../../src/netlink/ask.ts';
import { isNetlinkError } from '../../src/netlink/errors.ts';
import { type Link, linkQuestion } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import { findQdisc, QDISC_GONE, qdiscQuestion } from '../../src/netlink/rtnl/qdisc.ts';
import type { NetlinkSocket, Request } from '../../src/netlink/socket.ts';
import { ensureIfb, ifbNamesOf, ownAmong } from './ifb.ts';
import type { Shaping } from './plan.ts';
import { findQueueDifference, queueRemovals, queueRequests } from './queue.ts';
import { findRedirectDifference, redirectRemovals, redirectRequests } from './redirect.ts';

/** The IFB device through which packets from the container pass, and those to which no redirect leads any longer. */
export interface Detour {
  readonly ifb?: Link;
  readonly unused: readonly Link[];
}

/**
 * Limits both directions, and removes the limit of a direction that is unlimited. A device can only delay what it sends, so
 * packets from the container are redirected through an IFB device, which has its queue before the first packet arrives.
 */
export function applyShaping(
  host: NetlinkSocket,
  veth: Link,
  attachment: AttachmentId,
  { ingress, egress }: Shaping,
): Detour {
  const { root, hook, ifbs: present } = lookAt(host, veth, attachment);
  // Errors are thrown before anything is changed.
  const towards = ingress ? queueRequests(host, veth, root, ingress) : queueRemovals(host, root);
  if (!egress) {
    const ifbs = ownAmong(present, attachment);
    host.requestAll(towards);
    removeAll(host, redirectRemovals(host, veth, hook, ifbs));
    return { unused: ifbs };
  }
  const { link: ifb, isNew, settings } = ensureIfb(host, attachment, veth.mtu, present);
  const held = isNew ? undefined : findQdisc(host, ifb.index, 'root');
  host.requestAll([
    ...towards,
    ...settings,
    ...queueRequests(host, ifb, held, egress),
    ...redirectRequests(host, veth, hook, ifb),
  ]);
  return { ifb, unused: [] };
}

/** Compares the kernel with {@link applyShaping}. @throws Error saying what was expected and what was found */
export function verifyShaping(
  host: NetlinkSocket,
  veth: Link,
  attachment: AttachmentId,
  { ingress, egress }: Shaping,
): void {
  const { root, hook, ifbs } = lookAt(host, veth, attachment);
  if (ingress) refuseIf('ingress', veth, findQueueDifference(host, root, ingress));
  if (!egress) return;
  const [ifb] = ownAmong(ifbs, attachment);
  if (ifb === undefined) throw differs('egress', veth, 'its IFB device does not exist');
  if (!(ifb.flags & IFF_UP)) refuseIf('egress', ifb, 'the device is down');
  refuseIf('egress', ifb, findQueueDifference(host, findQdisc(host, ifb.index, 'root'), egress));
  refuseIf('egress', veth, findRedirectDifference(host, veth, hook, ifb));
}

/**
 * Removes what {@link applyShaping} added to host ends that still exist. The IFB devices themselves may already be gone; removing
 * them is up to the caller.
 */
export function removeShaping(host: NetlinkSocket, veths: readonly Link[], ifbs: readonly Link[]): void {
  const removals = veths.flatMap(veth => {
    const [root, hook] = askAll(host, hooksOf(veth));
    return [...queueRemovals(host, root), ...redirectRemovals(host, veth, hook, ifbs)];
  });
  removeAll(host, removals);
}

/** Reads the root qdisc and the ingress hook of a device, and the devices with the attachment's names. */
function lookAt(host: NetlinkSocket, veth: Link, attachment: AttachmentId) {
  const [first, second] = ifbNamesOf(attachment);
  const questions = [...hooksOf(veth), linkQuestion(first), linkQuestion(second)] as const;
  const [root, hook, ...ifbs] = askAll(host, questions);
  return { root, hook, ifbs };
}

function hooksOf({ index }: Link) {
  return [qdiscQuestion({ index, at: 'root' }), qdiscQuestion({ index, at: 'ingress' })] as const;
}

/** Missing ones are ignored. */
function removeAll(host: NetlinkSocket, requests: readonly Request[]): void {
  for (const outcome of host.attemptAll(requests)) {
    if (outcome instanceof Error && !isNetlinkError(outcome, ...QDISC_GONE)) throw outcome;
  }
}

function refuseIf(direction: string, device: Link, state: string | undefined): void {
  if (state !== undefined) throw differs(direction, device, state);
}

function differs(direction: string, device: Link, state: string): Error {
  return new Error(`Cannot confirm the ${direction} limit on "${device.name}": ${state}`);
}
