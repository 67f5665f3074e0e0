// How is a device made on top of another one: a macvlan, a macvtap, an ipvlan, a VLAN?

import type { ValuesOf } from '../codec/attrs.ts';
import { NLM_F_CREATE, NLM_F_EXCL, type Request } from '../codec/message.ts';
import type { NetlinkSocket } from '../socket.ts';
import type { Link } from './link.ts';
import { type ipvlan, linkMessage, type macvlan, type vlan } from './link-attrs.ts';

/** linux/rtnetlink.h */
const RTM_NEWLINK = 16;

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
