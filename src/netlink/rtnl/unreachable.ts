// How does a routing table refuse what none of its other routes takes, instead of leaving it to the next rule?

import { Errno } from '../../sys/errno.ts';
import { NLM_F_CREATE, NLM_F_EXCL, type Request } from '../codec/message.ts';
import { tolerating } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import { AF_INET, AF_INET6 } from './family.ts';
import { routeMessage } from './route.ts';

/** linux/rtnetlink.h */
const RTM_NEWROUTE = 24;
const RTM_DELROUTE = 25;
const RTM_GETROUTE = 26;
const RTPROT_UNSPEC = 0;
const RTPROT_BOOT = 3;
const RTN_UNREACHABLE = 7;
const ESRCH = 3;

/** Documentation/networking/vrf.rst: above the metric of any other default route, in every table. */
const METRIC = 4_278_198_272;

/** Adds the route; an existing one is kept. Same as: `ip route add table <table> unreachable default metric 4278198272` */
export function addUnreachableDefault(socket: NetlinkSocket, family: 4 | 6, table: number): void {
  const request = requestFor(RTM_NEWROUTE, family, table, RTPROT_BOOT);
  tolerating([Errno.EEXIST], () => socket.request({ ...request, flags: NLM_F_CREATE | NLM_F_EXCL }));
}

/** Deletes the route; a missing one is ignored. Same as: `ip route del table <table> unreachable default` */
export function removeUnreachableDefault(socket: NetlinkSocket, family: 4 | 6, table: number): void {
  tolerating([ESRCH], () => socket.request(requestFor(RTM_DELROUTE, family, table, RTPROT_UNSPEC)));
}

/** The tables of a family that have such a route. Same as: `ip route show table all type unreachable` */
export function listUnreachableDefaults(socket: NetlinkSocket, family: 4 | 6): number[] {
  const body = routeMessage.encode({ family: familyOf(family) }, {});
  return socket.dump({ op: 'list routes', type: RTM_GETROUTE, body }).flatMap(one => {
    const { header, attrs } = routeMessage.decode(one);
    const isIt = header.type === RTN_UNREACHABLE && header.dstLength === 0 && attrs.priority === METRIC;
    return isIt ? [attrs.table ?? header.table] : [];
  });
}

function requestFor(type: number, family: 4 | 6, table: number, protocol: number): Request {
  const isSmall = table < 256;
  const body = routeMessage.encode(
    { family: familyOf(family), table: isSmall ? table : 0, protocol, type: RTN_UNREACHABLE },
    { priority: METRIC, ...(isSmall ? {} : { table }) },
  );
  const verb = type === RTM_NEWROUTE ? 'add' : 'delete';
  return { op: `${verb} unreachable IPv${family} default route of table ${table}`, type, body };
}

function familyOf(family: 4 | 6): number {
  return family === 4 ? AF_INET : AF_INET6;
}
