// Which multicast groups does an interface listen to?
import type { Ip } from '../../net/ip.ts';
import { attrs, ip } from '../codec/attrs.ts';
import { layout } from '../codec/message.ts';
import type { NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';
import { ifaddrmsg } from './addr.ts';

/** linux/rtnetlink.h */
const RTM_GETMULTICAST = 58;
const AF_INET6 = 10;

/** RTM_GETMULTICAST, request and reply; linux/if_addr.h, IFA_MULTICAST. */
const multicastMessage = traced(
  'NETLINK_ROUTE',
  { [RTM_GETMULTICAST]: 'RTM_GETMULTICAST' },
  layout(ifaddrmsg, attrs('multicast address', { multicast: [7, ip] })),
);

/** IPv6 groups of an interface. Same as: `ip -6 maddr show dev <link>` */
export function listIpv6Groups(socket: NetlinkSocket, index: number): Ip[] {
  const body = multicastMessage.encode({ family: AF_INET6, index }, {});
  const replies = socket.dump({ op: 'list multicast groups', type: RTM_GETMULTICAST, body });
  // An old kernel lists the groups of all interfaces.
  return replies.flatMap(reply => {
    const { header, attrs: own } = multicastMessage.decode(reply);
    return header.index === index && own.multicast ? [own.multicast] : [];
  });
}
