// Which kinds of devices and qdiscs does this kernel support, and how is a device made on top of another one?

import { Errno } from '../../sys/errno.ts';
import { NLM_F_CREATE, NLM_F_EXCL, type Request, u32, type ValuesOf, Writer } from '../codec.ts';
import { type NetlinkSocket, tolerating } from '../socket.ts';
import { type ipvlan, type Link, linkMessage, type macvlan, type vlan } from './link.ts';
import { qdiscMessage, TC_H_ROOT } from './qdisc.ts';

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

/** The kinds of upper devices, with their own attributes. */
export interface UpperData {
  readonly macvlan: ValuesOf<typeof macvlan>;
  readonly macvtap: ValuesOf<typeof macvlan>;
  readonly ipvlan: ValuesOf<typeof ipvlan>;
  readonly vlan: ValuesOf<typeof vlan>;
}

/** A key of {@link UpperData}. */
export type UpperKind = keyof UpperData;

/** The properties of a new upper device. */
export interface NewUpper<K extends UpperKind = UpperKind> {
  readonly name: string;
  readonly kind: K;
  readonly data: UpperData[K];
  /** Index of the lower device, in the socket's namespace. */
  readonly lower: number;
  /** Descriptor of the namespace in which the device is created; the socket's own unless given. */
  readonly netnsFd?: number | undefined;
  readonly mac?: string | undefined;
  /** Bytes; the lower device's unless given. */
  readonly mtu?: number | undefined;
}

/**
 * Creates an upper device; EEXIST when the name is taken. Before Linux 6.15 that is also the answer when a device of the socket's
 * own namespace has the name, although the new one is created in another.
 * Same as: `ip link add <name> link <lower> netns <ns> type macvlan mode bridge`
 */
export function createUpper(socket: NetlinkSocket, upper: NewUpper): void {
  const { name, kind, data, lower: link, netnsFd, mac: address, mtu } = upper;
  const body = linkMessage.encode(
    {},
    {
      ifname: name,
      link,
      ...(netnsFd === undefined ? {} : { netnsFd }),
      ...(address ? { address } : {}),
      ...(mtu ? { mtu } : {}),
      linkinfo: { kind, data },
    },
  );
  const op = `create link "${name}" of kind ${kind}`;
  socket.request({ op, type: RTM_NEWLINK, flags: NLM_F_CREATE | NLM_F_EXCL, body });
}

/**
 * Changes attributes of an upper device's kind. Same as: `ip link set dev <link> type macvlan mode bridge`
 * @throws NetlinkError
 */
export function setUpper<K extends UpperKind>(
  socket: NetlinkSocket,
  index: number,
  kind: K,
  data: UpperData[K],
): void {
  const body = linkMessage.encode({ index }, { linkinfo: { kind, data } });
  const op = `set attributes of kind ${kind} on link with index ${index}`;
  socket.request({ op, type: RTM_NEWLINK, body } satisfies Request);
}

/** The attributes of a device's kind, or undefined when it is of another kind. */
export function upperDataOf<K extends UpperKind>(link: Link, kind: K): UpperData[K] | undefined {
  const data = link.attrs.linkinfo?.data;
  if (link.kind !== kind || data === undefined || data instanceof Uint8Array) return undefined;
  return data as UpperData[K];
}
