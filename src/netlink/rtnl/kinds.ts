// Which kinds of devices and qdiscs does this kernel support, and how is a device made on top of another one?

import { Errno } from '../../sys/errno.ts';
import { u32, type ValuesOf, Writer } from '../codec.ts';
import { NetlinkError, type NetlinkSocket, tolerating } from '../socket.ts';
import { explainKind, type ipvlan, linkMessage, type macvlan, type vlan } from './link.ts';
import { qdiscMessage, TC_H_ROOT } from './qdisc.ts';

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
  const request = linkMessage.add(`use devices of kind ${kind}`, {}, { linkinfo: { kind }, unknown });
  const [outcome] = socket.attemptAll([request]);
  if (outcome instanceof NetlinkError && outcome.errno !== Errno.EINVAL) throw explainKind(outcome, kind);
}

/**
 * Checks that the kernel supports a kind of token bucket, loading its module as using one would.
 * @throws NetlinkError when it does not, or when we are not permitted to ask
 */
export function requireQdiscKind(socket: NetlinkSocket, kind: 'tbf' | 'htb'): void {
  const place = { index: LOOPBACK_INDEX, parent: TC_H_ROOT };
  // The kernel refuses a token bucket without parameters, but only after it has found the kind; EEXIST tells nothing.
  tolerating([Errno.EINVAL, Errno.EEXIST], () =>
    socket.request(qdiscMessage.add(`use qdiscs of kind ${kind}`, place, { kind })),
  );
}

/**
 * Checks that we may change devices, with a request that changes nothing.
 * @throws NetlinkError when we may not
 */
export function requireLinkChanges(socket: NetlinkSocket): void {
  socket.request(linkMessage.change('change devices', { index: LOOPBACK_INDEX }, {}));
}

/** The kinds of upper devices, with their own attributes. */
export interface UpperData {
  readonly macvlan: ValuesOf<typeof macvlan>;
  readonly macvtap: ValuesOf<typeof macvlan>;
  readonly ipvlan: ValuesOf<typeof ipvlan>;
  readonly vlan: ValuesOf<typeof vlan>;
}

export type UpperKind = keyof UpperData;

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
  const { name, kind, data, lower, netnsFd, mac, mtu } = upper;
  const own = {
    ifname: name,
    link: lower,
    netnsFd,
    address: mac || undefined,
    mtu: mtu || undefined,
    linkinfo: { kind, data },
  };
  const [made] = socket.attemptAll([linkMessage.add(`create link "${name}" of kind ${kind}`, {}, own)]);
  if (made instanceof NetlinkError) throw explainKind(made, kind);
}

/** Changes attributes of an upper device's kind. Same as: `ip link set dev <link> type macvlan mode bridge` */
export function setUpper<K extends UpperKind>(
  socket: NetlinkSocket,
  index: number,
  kind: K,
  data: UpperData[K],
): void {
  const op = `set attributes of kind ${kind} on link with index ${index}`;
  socket.request(linkMessage.change(op, { index }, { linkinfo: { kind, data } }));
}
