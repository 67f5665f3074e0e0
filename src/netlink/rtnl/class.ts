// Into which classes does a qdisc sort packets, and at which rates?
import { attrs, byKind, str } from '../codec/attrs.ts';
import { layout, NLM_F_CREATE, NLM_F_EXCL, type Request } from '../codec/message.ts';
import type { NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';
import { type HtbClass, htbClassFromOptions, htbClassToOptions, htbOptions } from './tc/htb.ts';
import { renderTcHandle, tcHandle, tcmsg } from './tc/tcmsg.ts';

/** linux/rtnetlink.h */
const RTM_NEWTCLASS = 40;
const RTM_GETTCLASS = 42;

/** linux/rtnetlink.h, TCA_* */
const classAttrs = attrs('class', {
  kind: [1, str],
  options: [2, byKind('kind', { htb: htbOptions })],
});

/** RTM_NEWTCLASS and RTM_GETTCLASS. */
export const classMessage = traced(
  'NETLINK_ROUTE',
  { 40: 'RTM_NEWTCLASS', 41: 'RTM_DELTCLASS', 42: 'RTM_GETTCLASS' },
  layout(tcmsg, classAttrs),
);

/** A class as the kernel reports it. */
export interface TrafficClass {
  readonly kind: string;
  readonly handle: number;
  /** The qdisc or the parent class. */
  readonly parent: number;
  /** For kind `htb`. */
  readonly htb: HtbClass | undefined;
}

/** Classes of all qdiscs of a device. Same as: `tc class show dev <link>` */
export function listClasses(socket: NetlinkSocket, index: number): TrafficClass[] {
  const body = classMessage.encode({ index }, {});
  const op = `list classes of link with index ${index}`;
  return socket.dump({ op, type: RTM_GETTCLASS, body }).map(decodeClass);
}

/**
 * Adds a class to the qdisc `1:`.
 * Same as: `tc class add dev <link> parent 1: classid 1:<minor> htb rate … ceil … burst … cburst … quantum …`
 */
export function htbClassRequest(index: number, minor: number, htb: HtbClass): Request {
  const [handle, parent] = [tcHandle(1, minor), tcHandle(1, 0)];
  const body = classMessage.encode(
    { index, handle, parent },
    { kind: 'htb', options: htbClassToOptions(htb) },
  );
  const op = `add class ${renderTcHandle(handle)} to link with index ${index}`;
  return { op, type: RTM_NEWTCLASS, flags: NLM_F_CREATE | NLM_F_EXCL, body };
}

function decodeClass(body: Uint8Array): TrafficClass {
  const { header, attrs: own } = classMessage.decode(body);
  const { kind = '', options } = own;
  const htb = options === undefined || options instanceof Uint8Array ? undefined : options;
  return {
    kind,
    handle: header.handle,
    parent: header.parent,
    htb: htb && htbClassFromOptions(htb),
  };
}
