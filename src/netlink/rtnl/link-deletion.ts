// When is a device deleted, before the kernel has freed it?
//
// A request that deletes a device returns after a grace period (10 to 20 ms), in which the kernel only frees what no other program
// can find. Names, addresses, routes and rules of the device have gone in the first millisecond, and then the kernel says so
// (net/core/dev.c, unregister_netdevice_many: RTM_DELLINK; netdev_run_todo waits afterwards, without the rtnl lock). Thus another
// process sends the request on a socket of ours and waits for the rest, while this one goes on.
import { closeSync } from 'node:fs';
import { SystemError } from '../../sys/libc.ts';
import {
  type Envelope,
  encodeMessages,
  NLM_F_ACK,
  NLM_F_REQUEST,
  NLMSG_ERROR,
  type Request,
  readS32,
} from '../codec.ts';
import {
  exchange,
  joinGroup,
  NETLINK_ROUTE,
  openNetlink,
  receiveMessages,
  refusalOf,
  setReceiveTimeout,
} from '../socket.ts';
import { RTM_DELLINK } from './link.ts';

/** linux/rtnetlink.h */
const RTNLGRP_LINK = 1;
/** sys/socket.h. Other families tell what a bridge knows of its ports. */
const AF_UNSPEC = 0;

/** The only request on the socket. */
const SEQ = 1;

/** Longest wait for a sign of the other process, in seconds: it was ended, or gets no processor. */
const PATIENCE_S = 5;

/** A socket that hears of devices being deleted in the namespace of the thread that opened it. */
export class LinkDeletion {
  /** The descriptor on which the other process sends. */
  readonly fd = openNetlink(NETLINK_ROUTE);

  /** @throws SystemError if the socket cannot be opened */
  constructor() {
    try {
      joinGroup(this.fd, RTNLGRP_LINK);
      setReceiveTimeout(this.fd, PATIENCE_S);
    } catch (thrown) {
      this.close();
      throw thrown;
    }
  }

  /**
   * Has the request sent and waits until all devices are deleted.
   * @param send starts the process that sends these bytes on the descriptor
   * @returns false if nothing was heard for five seconds, or too much at once: they may be there or not
   * @throws NetlinkError if the kernel refuses the request
   */
  perform(
    request: Request,
    indexes: readonly number[],
    send: (fd: number, bytes: Uint8Array) => void,
  ): boolean {
    const { type, body } = request;
    const message = encodeMessages([{ type, flags: NLM_F_REQUEST | NLM_F_ACK, seq: SEQ, body }]);
    return exchange(NETLINK_ROUTE, [request], () => {
      send(this.fd, message);
      return this.#settle(request, new Set(indexes));
    });
  }

  close(): void {
    closeSync(this.fd);
  }

  #settle(request: Request, left: Set<number>): boolean {
    try {
      while (left.size > 0) {
        for (const message of receiveMessages(this.fd, NETLINK_ROUTE)) {
          if (message.type === NLMSG_ERROR && message.seq === SEQ) {
            const refusal = refusalOf(message, request);
            if (refusal) throw refusal.toError();
            return true;
          }
          const index = deletedLink(message);
          if (index !== undefined) left.delete(index);
        }
      }
      return true;
    } catch (thrown) {
      if (thrown instanceof SystemError) return false;
      throw thrown;
    }
  }
}

/** Index of the device that a notification reports as deleted, or as moved to another namespace. struct ifinfomsg */
function deletedLink({ type, body }: Envelope): number | undefined {
  return type === RTM_DELLINK && body.length >= 8 && body[0] === AF_UNSPEC ? readS32(body, 4) : undefined;
}
