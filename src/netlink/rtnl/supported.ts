// Can this kernel make devices and qdiscs of a kind? Asked with requests that it can only refuse.
import { Errno } from '../../sys/errno.ts';
import { u32 } from '../codec/fields.ts';
import { NLM_F_CREATE, NLM_F_EXCL } from '../codec/message.ts';
import { Writer } from '../codec/writer.ts';
import { tolerating } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import { linkMessage } from './link-attrs.ts';
import { qdiscMessage } from './qdisc.ts';
import { TC_H_ROOT } from './tc/tcmsg.ts';

/** linux/rtnetlink.h */
const RTM_NEWLINK = 16;
const RTM_NEWQDISC = 36;
/** linux/if_link.h */
const IFLA_NUM_TX_QUEUES = 31;
/** The loopback device is the first of every namespace. */
const LOOPBACK_INDEX = 1;

/**
 * Makes sure that the kernel knows a kind of device, loading its module as creating one would.
 * @throws NetlinkError when it does not, or when we may not ask
 */
export function requireLinkKind(socket: NetlinkSocket, kind: 'veth' | 'bridge' | 'ifb'): void {
  const none = new Writer();
  u32.encode(none, 0, {});
  // A device without queues is refused, but only after its kind was found.
  const unknown = [{ type: IFLA_NUM_TX_QUEUES, bytes: none.finish() }];
  const body = linkMessage.encode({}, { linkinfo: { kind }, unknown });
  const request = { op: `use devices of kind ${kind}`, type: RTM_NEWLINK, body };
  tolerating([Errno.EINVAL], () => socket.request({ ...request, flags: NLM_F_CREATE | NLM_F_EXCL }));
}

/**
 * Makes sure that the kernel knows a kind of token bucket, loading its module as using one would.
 * @throws NetlinkError when it does not, or when we may not ask
 */
export function requireQdiscKind(socket: NetlinkSocket, kind: 'tbf' | 'htb'): void {
  const body = qdiscMessage.encode({ index: LOOPBACK_INDEX, parent: TC_H_ROOT }, { kind });
  // A token bucket without parameters is refused, but only after its kind was found; EEXIST tells nothing.
  tolerating([Errno.EINVAL, Errno.EEXIST], () =>
    socket.request({
      op: `use qdiscs of kind ${kind}`,
      type: RTM_NEWQDISC,
      flags: NLM_F_CREATE | NLM_F_EXCL,
      body,
    }),
  );
}

/**
 * Makes sure that we may change devices, by changing nothing of one.
 * @throws NetlinkError when we may not
 */
export function requireLinkChanges(socket: NetlinkSocket): void {
  const body = linkMessage.encode({ index: LOOPBACK_INDEX }, {});
  socket.request({ op: 'change devices', type: RTM_NEWLINK, body });
}
