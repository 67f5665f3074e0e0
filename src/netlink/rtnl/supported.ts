// Does this kernel support devices and qdiscs of a kind? Tested with requests that the kernel must refuse.
import { Errno } from '../../sys/errno.ts';
import { u32 } from '../codec/attrs.ts';
import { Writer } from '../codec/bytes.ts';
import { NLM_F_CREATE, NLM_F_EXCL } from '../codec/message.ts';
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
 * Checks that the kernel supports a kind of device, loading its module as creating one would.
 * @throws NetlinkError when it does not, or when we are not permitted to ask
 */
export function requireLinkKind(socket: NetlinkSocket, kind: string): void {
  const none = new Writer();
  u32.encode(none, 0, {});
  // The kernel refuses a device without queues, but only after it has found the kind.
  const unknown = [{ type: IFLA_NUM_TX_QUEUES, bytes: none.finish() }];
  const body = linkMessage.encode({}, { linkinfo: { kind }, unknown });
  const request = { op: `use devices of kind ${kind}`, type: RTM_NEWLINK, body };
  tolerating([Errno.EINVAL], () => socket.request({ ...request, flags: NLM_F_CREATE | NLM_F_EXCL }));
}

/**
 * Checks that the kernel supports a kind of token bucket, loading its module as using one would.
 * @throws NetlinkError when it does not, or when we are not permitted to ask
 */
export function requireQdiscKind(socket: NetlinkSocket, kind: 'tbf' | 'htb'): void {
  const body = qdiscMessage.encode({ index: LOOPBACK_INDEX, parent: TC_H_ROOT }, { kind });
  // The kernel refuses a token bucket without parameters, but only after it has found the kind; EEXIST tells nothing.
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
 * Checks that we may change devices, with a request that changes nothing.
 * @throws NetlinkError when we may not
 */
export function requireLinkChanges(socket: NetlinkSocket): void {
  const body = linkMessage.encode({ index: LOOPBACK_INDEX }, {});
  socket.request({ op: 'change devices', type: RTM_NEWLINK, body });
}
