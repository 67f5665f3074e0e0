// How is a macvtap made?
import { NLM_F_CREATE, NLM_F_EXCL } from '../codec/message.ts';
import type { NetlinkSocket } from '../socket.ts';
import { linkMessage } from './link-attrs.ts';

/** linux/rtnetlink.h */
const RTM_NEWLINK = 16;

/** The properties of a new macvtap. */
export interface NewMacvtap {
  readonly name: string;
  /** Index of the device that it is made on, in the socket's namespace. */
  readonly master: number;
  readonly mode: number;
  /** Descriptor of the namespace that it is made in. */
  readonly netnsFd: number;
}

/**
 * Creates a macvtap directly in another namespace; fails with EEXIST when the name is taken there.
 * Same as: `ip link add link <master> name <name> netns <netns> type macvtap mode <mode>`
 */
export function createMacvtap(socket: NetlinkSocket, link: NewMacvtap): void {
  const { name, master, mode, netnsFd } = link;
  const body = linkMessage.encode(
    {},
    {
      ifname: name,
      link: master,
      netnsFd,
      linkinfo: { kind: 'macvtap', data: { mode } },
    },
  );
  const op = `create link "${name}" of kind macvtap`;
  socket.request({ op, type: RTM_NEWLINK, flags: NLM_F_CREATE | NLM_F_EXCL, body });
}
