// Which connections does the kernel track, and how is one deleted?
import { type Ip, renderIp, sameIp } from '../net/ip.ts';
import { Errno } from '../sys/errno.ts';
import { findSysctl } from '../sys/sysctl.ts';
import { attrs, ip, layout, u8, u16be, u32, u32be } from './codec.ts';
import { IP_NFPROTO, NFPROTO, nfgenmsg } from './nft/message.ts';
import { type NetlinkSocket, tolerating } from './socket.ts';
import { traced } from './trace.ts';

/** linux/netfilter.h */
const NFPROTO_UNSPEC = 0;
/** linux/netfilter/nfnetlink_conntrack.h, enum cntl_msg_types, of NFNL_SUBSYS_CTNETLINK */
const IPCTNL_MSG_CT_GET = 0x101;
const IPCTNL_MSG_CT_DELETE = 0x102;

/** Bits of CTA_FILTER_ORIG_FLAGS and CTA_FILTER_REPLY_FLAGS: the fields of a direction that a dump filters by (kernel 5.8). */
const CTA_FILTER_F_CTA_IP_SRC = 1 << 0;
const CTA_FILTER_F_CTA_PROTO_NUM = 1 << 3;
const CTA_FILTER_F_CTA_PROTO_DST_PORT = 1 << 5;

/** linux/netfilter/nfnetlink_conntrack.h, enum ctattr_ip and ctattr_l4proto */
const tuple = attrs('tuple', {
  ip: [1, attrs('addresses', { v4Src: [1, ip], v4Dst: [2, ip], v6Src: [3, ip], v6Dst: [4, ip] })],
  proto: [2, attrs('ports', { protocol: [1, u8], source: [2, u16be], destination: [3, u16be] })],
  zone: [3, u16be],
});

/** linux/netfilter/nfnetlink_conntrack.h, enum ctattr_type */
const flowAttrs = attrs('flow', {
  original: [1, tuple],
  reply: [2, tuple],
  status: [3, u32be],
  id: [12, u32be],
  zone: [18, u16be],
  filter: [25, attrs('filter', { originalFlags: [1, u32], replyFlags: [2, u32] })],
});

const flowMessage = traced(
  'NETLINK_NETFILTER',
  { 256: 'IPCTNL_MSG_CT_NEW', 257: 'IPCTNL_MSG_CT_GET', 258: 'IPCTNL_MSG_CT_DELETE' },
  layout(nfgenmsg, flowAttrs),
);

/** linux/netfilter/nf_conntrack_common.h */
const IPS_SEEN_REPLY = 1 << 1;

/** A connection, or the equivalent for UDP. */
export interface Flow {
  readonly family: 4 | 6;
  /** Source of its first packet. */
  readonly source: Ip;
  /** Destination of its first packet. */
  readonly destination: Ip;
  readonly destinationPort: number;
  /** The host that answers: differs from the destination if that was translated. */
  readonly responder: Ip;
  readonly responderPort: number;
  /** Whom it answers: differs from the source if that was translated. */
  readonly answered: Ip;
  readonly hasAnswer: boolean;
  readonly attrs: ReturnType<typeof flowAttrs.decode>;
}

export interface FlowFilter {
  /** Both families when absent: the table is scanned once, but the kernel does not filter. */
  readonly family?: 4 | 6 | undefined;
  /** IPPROTO_*; any when absent. */
  readonly protocol?: number | undefined;
  /** Source of the first packet. */
  readonly source?: Ip | undefined;
  /** Destination port of the first packet. */
  readonly port?: number | undefined;
  /** The host that answers. */
  readonly responder?: Ip | undefined;
}

/**
 * Flows that match a filter. The kernel compares, so a table of a million flows costs no more than scanning it. The scan alone
 * takes some milliseconds, because the table has a fixed size. Addresses of IPv6 are compared here: the kernel leaves out those that are
 * equal (ctnetlink_filter_match_tuple(), seen up to 6.18).
 * Same as: `conntrack -L -f ipv4|ipv6 [-p <protocol>] [--orig-src <source>] [--orig-port-dst <port>] [--reply-src <responder>]`
 */
export function listFlows(socket: NetlinkSocket, filter: FlowFilter): Flow[] {
  const { family, protocol, port } = filter;
  const { source, responder } = family === 4 ? filter : {};
  const originalFlags =
    (source ? CTA_FILTER_F_CTA_IP_SRC : 0) |
    (protocol === undefined ? 0 : CTA_FILTER_F_CTA_PROTO_NUM) |
    (port === undefined ? 0 : CTA_FILTER_F_CTA_PROTO_DST_PORT);
  const wanted = family && {
    original: { ip: source && { v4Src: source }, proto: { protocol, destination: port } },
    reply: responder && { ip: { v4Src: responder } },
    filter: { originalFlags, replyFlags: responder ? CTA_FILTER_F_CTA_IP_SRC : 0 },
  };
  const body = flowMessage.encode({ family: family ? IP_NFPROTO[family] : NFPROTO_UNSPEC }, wanted ?? {});
  const bodies = socket.dump({ op: 'list flows', type: IPCTNL_MSG_CT_GET, body });
  // Kernels without the filter return all flows.
  return bodies.flatMap(one => flowOf(flowMessage.decode(one))).filter(flow => passes(flow, filter));
}

/**
 * Makes the kernel forget a flow, so that its next packet is matched against the current rules; a missing flow is ignored.
 * Same as: `conntrack -D` with everything that identifies the flow
 */
export function removeFlow(socket: NetlinkSocket, flow: Flow): void {
  const { original, id, zone } = flow.attrs;
  const body = flowMessage.encode({ family: IP_NFPROTO[flow.family] }, { original, id, zone });
  const op = `delete flow to ${renderIp(flow.destination)} port ${flow.destinationPort}`;
  tolerating([Errno.ENOENT], () => socket.request({ op, type: IPCTNL_MSG_CT_DELETE, body }));
}

/**
 * Number of flows tracked in the thread's namespace, a cheap query; undefined when the kernel does not report it.
 * Same as: `conntrack -C`
 */
export function countFlows(): number | undefined {
  const count = findSysctl('net/netfilter/nf_conntrack_count');
  return count === undefined ? undefined : Number(count);
}

function passes(flow: Flow, { family, protocol, source, port, responder }: FlowFilter): boolean {
  return (
    (family === undefined || flow.family === family) &&
    (protocol === undefined || flow.attrs.original?.proto?.protocol === protocol) &&
    (source === undefined || sameIp(flow.source, source)) &&
    (port === undefined || flow.destinationPort === port) &&
    (responder === undefined || sameIp(flow.responder, responder))
  );
}

function flowOf({ header, attrs: own }: ReturnType<typeof flowMessage.decode>): Flow[] {
  const family = header.family === NFPROTO.ip ? 4 : 6;
  const [src, dst] = [`v${family}Src`, `v${family}Dst`] as const;
  const { [src]: source, [dst]: destination } = own.original?.ip ?? {};
  const { [src]: responder, [dst]: answered } = own.reply?.ip ?? {};
  if (!source || !destination || !responder || !answered) return [];
  return [
    {
      family,
      source,
      destination,
      destinationPort: own.original?.proto?.destination ?? 0,
      responder,
      responderPort: own.reply?.proto?.source ?? 0,
      answered,
      hasAnswer: ((own.status ?? 0) & IPS_SEEN_REPLY) !== 0,
      attrs: own,
    },
  ];
}
