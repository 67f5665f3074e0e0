// Under which id does one namespace know another?

import { ownNetns } from '../../sys/netns.ts';
import { askAll, type Question } from '../ask.ts';
import { attrs, s32, u8, u32 } from '../codec/attrs.ts';
import { layout, struct } from '../codec/message.ts';
import type { NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';

/** linux/rtnetlink.h */
const RTM_GETNSID = 90;
/** linux/net_namespace.h, NETNSA_NSID_NOT_ASSIGNED */
const NO_ID = -1;

/** linux/rtnetlink.h: struct rtgenmsg { unsigned char rtgen_family; } */
export const rtgenmsg = struct('rtgenmsg', [['family', u8]]);

/** linux/net_namespace.h, NETNSA_* */
const netnsAttrs = attrs('namespace id', {
  nsid: [1, s32],
  fd: [3, u32],
});

/** RTM_GETNSID. */
const netnsIdMessage = traced(
  'NETLINK_ROUTE',
  { 88: 'RTM_NEWNSID', 89: 'RTM_DELNSID', 90: 'RTM_GETNSID' },
  layout(rtgenmsg, netnsAttrs),
);

/**
 * The id by which links of the socket's namespace refer to another namespace (`IFLA_LINK_NETNSID`); -1 if it has none, as a
 * namespace has none for itself.
 * Same as: `ip netns list-id`
 */
export function netnsIdOf(socket: NetlinkSocket, netnsFd: number): number {
  const [id = NO_ID] = askAll(socket, [netnsIdQuestion(netnsFd)]);
  return id;
}

/** The question of {@link netnsIdOf}, for a batch. */
export function netnsIdQuestion(netnsFd: number): Question<number> {
  return {
    op: 'find the id of a network namespace',
    type: RTM_GETNSID,
    body: netnsIdMessage.encode({}, { fd: netnsFd }),
    isQuestion: true,
    absent: [],
    read: body => netnsIdMessage.decode(body).attrs.nsid ?? NO_ID,
  };
}

/** The id by which links of the socket's namespace refer to the namespace that the thread is in; -1 if none does. */
export function ownIdIn(socket: NetlinkSocket): number {
  return netnsIdOf(socket, ownNetns().fd);
}
