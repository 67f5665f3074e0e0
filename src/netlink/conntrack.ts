// Which connections does the kernel remember, and how is it made to forget one?
import { type Ip, renderIp } from '../net/ip.ts';
import { Errno } from '../sys/errno.ts';
import { attrs } from './codec/attrs.ts';
import { ip, u8, u16be, u32, u32be } from './codec/fields.ts';
import { layout } from './codec/message.ts';
import { tolerating } from './errors.ts';
import { NFPROTO, nfgenmsg } from './nfgenmsg.ts';
import type { NetlinkSocket } from './socket.ts';
import { traced } from './trace.ts';

/** linux/netfilter/nfnetlink.h */
const NFNL_SUBSYS_CTNETLINK = 1;
/** linux/netfilter/nfnetlink_conntrack.h, enum cntl_msg_types */
const IPCTNL_MSG_CT_GET = 1;
const IPCTNL_MSG_CT_DELETE = 2;

/** Bits of CTA_FILTER_ORIG_FLAGS: what of the original direction a dump is narrowed to (kernel 5.8). */
const CTA_FILTER_F_CTA_PROTO_NUM = 1 << 3;
const CTA_FILTER_F_CTA_PROTO_DST_PORT = 1 << 5;

/** linux/netfilter/nfnetlink_conntrack.h, enum ctattr_ip and ctattr_l4proto */
const tuple = attrs('tuple', {
  ip: [1, attrs('addresses', { v4Src: [1, ip], v4Dst: [2, ip], v6Src: [3, ip], v6Dst: [4, ip] })],
  proto: [2, attrs('ports', { protocol: [1, u8], source: [2, u16be], destination: [3, u16be] })],
  zone: [3, u16be],
});

/** linux/netfilter/nfnetlink_conntrack.h, enum ctattr_type */
export const flowAttrs = attrs('flow', {
  original: [1, tuple],
  reply: [2, tuple],
  status: [3, u32be],
  id: [12, u32be],
  zone: [18, u16be],
  filter: [25, attrs('filter', { originalFlags: [1, u32], replyFlags: [2, u32] })],
});

/** IPCTNL_MSG_CT_GET and IPCTNL_MSG_CT_DELETE. */
export const flowMessage = traced(
  'NETLINK_NETFILTER',
  { 256: 'IPCTNL_MSG_CT_NEW', 257: 'IPCTNL_MSG_CT_GET', 258: 'IPCTNL_MSG_CT_DELETE' },
  layout(nfgenmsg, flowAttrs),
);

/** A connection, or what UDP has in place of one. */
export interface Flow {
  readonly family: 4 | 6;
  /** Where its first packet was sent. */
  readonly destination: Ip;
  readonly destinationPort: number;
  /** Who answers: differs from the destination when that was translated. */
  readonly responder: Ip;
  readonly responderPort: number;
  readonly attrs: ReturnType<typeof flowAttrs.decode>;
}

/** What {@link listFlows} looks for. */
export interface FlowFilter {
  readonly family: 4 | 6;
  /** IPPROTO_* */
  readonly protocol: number;
  /** Destination port of the first packet. */
  readonly port: number;
}

/**
 * Flows to a port. The kernel compares, so that a table of a million flows costs no more than walking it.
 * Same as: `conntrack -L -f ipv4|ipv6 -p <protocol> --orig-port-dst <port>`
 */
export function listFlows(socket: NetlinkSocket, { family, protocol, port }: FlowFilter): Flow[] {
  const body = flowMessage.encode(
    { family: family === 4 ? NFPROTO.ip : NFPROTO.ip6 },
    {
      original: { proto: { protocol, destination: port } },
      filter: {
        originalFlags: CTA_FILTER_F_CTA_PROTO_NUM | CTA_FILTER_F_CTA_PROTO_DST_PORT,
        replyFlags: 0,
      },
    },
  );
  const type = (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_GET;
  const bodies = socket.dump({ op: `list flows to port ${port}`, type, body });
  return bodies.flatMap(one => {
    const own = flowMessage.decode(one).attrs;
    // Kernels without the filter send everything.
    const { protocol: found, destination } = own.original?.proto ?? {};
    return found === protocol && destination === port ? flowOf(family, own) : [];
  });
}

/**
 * Makes the kernel forget a flow, so that its next packet is looked at by the rules of today; one that is gone is fine.
 * Same as: `conntrack -D` with everything that identifies the flow
 */
export function removeFlow(socket: NetlinkSocket, flow: Flow): void {
  const { original, id, zone } = flow.attrs;
  const body = flowMessage.encode(
    { family: flow.family === 4 ? NFPROTO.ip : NFPROTO.ip6 },
    {
      ...(original ? { original } : {}),
      ...(id === undefined ? {} : { id }),
      ...(zone === undefined ? {} : { zone }),
    },
  );
  const type = (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_DELETE;
  const op = `delete flow to ${renderIp(flow.destination)} port ${flow.destinationPort}`;
  tolerating([Errno.ENOENT], () => socket.request({ op, type, body }));
}

function flowOf(family: 4 | 6, own: Flow['attrs']): Flow[] {
  const destination = own.original?.ip?.[`v${family}Dst`];
  const responder = own.reply?.ip?.[`v${family}Src`];
  if (destination === undefined || responder === undefined) return [];
  return [
    {
      family,
      destination,
      destinationPort: own.original?.proto?.destination ?? 0,
      responder,
      responderPort: own.reply?.proto?.source ?? 0,
      attrs: own,
    },
  ];
}
