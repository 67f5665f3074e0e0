// Which sockets of a namespace wait for packets?
import { FAMILIES, type Ip, ipFromBytes, withoutMapping } from '../net/ip.ts';
import { attrs, bytes, layout, struct, u8, u16be, u32 } from './codec.ts';
import { AF } from './rtnl/message.ts';
import { NetlinkError, NetlinkSocket } from './socket.ts';

/** linux/netlink.h */
const NETLINK_SOCK_DIAG = 4;
/** linux/sock_diag.h */
const SOCK_DIAG_BY_FAMILY = 20;
/** net/tcp_states.h: a TCP socket that waits is in state 10, a UDP socket without a peer in state 7. */
const WAITING = { 6: 1 << 10, 17: 1 << 7 } as const;

/** So many bytes, such as the sixteen that hold an address of either family. */
function room(size: number) {
  return { ...bytes, size };
}

/** linux/inet_diag.h: struct inet_diag_req_v2; its struct inet_diag_sockid is zero. */
const question = layout(
  struct('inet_diag_req_v2', { family: u8, protocol: u8, _ext: u8, _pad: u8, states: u32, _id: room(48) }),
  attrs('question', {}),
);

/** linux/inet_diag.h: struct inet_diag_msg with struct inet_diag_sockid in it. */
const answer = layout(
  struct('inet_diag_msg', {
    family: u8,
    state: u8,
    _timer: u8,
    _retrans: u8,
    port: u16be,
    _peerPort: u16be,
    address: room(16),
    _peer: room(16),
    device: u32,
    _rest: room(24),
    inode: u32,
  }),
  attrs('socket', { onlyV6: [11, u8] }), // INET_DIAG_SKV6ONLY
);

/** A socket that waits for connections or datagrams. */
export interface Listener {
  /** That of IPv4 if an IPv6 socket takes only what comes to that one. */
  readonly address: Ip;
  readonly port: number;
  /** Index of the device from which alone it takes packets (SO_BINDTODEVICE); 0 for all. */
  readonly device: number;
  /** False if an IPv6 socket takes IPv4 as well. */
  readonly onlyV6: boolean;
  /** Its number, by which processes have it open. */
  readonly inode: number;
}

/**
 * TCP sockets that listen, or UDP sockets without a peer, of the thread's namespace; undefined if the kernel cannot tell.
 * Same as: `ss -lnt`, `ss -lnu`
 */
export function listListeners(protocol: 6 | 17): Listener[] | undefined {
  const socket = new NetlinkSocket(NETLINK_SOCK_DIAG);
  try {
    return FAMILIES.flatMap(family => {
      const body = question.encode({ family: AF[family], protocol, states: WAITING[protocol] }, {});
      const op = `list the sockets of IPv${family}`;
      return socket.dump({ op, type: SOCK_DIAG_BY_FAMILY, body }).map(one => {
        const { header, attrs: own } = answer.decode(one);
        const address = withoutMapping(ipFromBytes(header.address.subarray(0, family === 4 ? 4 : 16)));
        const { port, device, inode } = header;
        return { address, port, device, inode, onlyV6: (own.onlyV6 ?? 0) !== 0 };
      });
    });
  } catch (error) {
    if (error instanceof NetlinkError) return undefined;
    throw error;
  } finally {
    socket.close();
  }
}
