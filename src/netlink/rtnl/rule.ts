// How are routing policy rules listed, added and removed?
import { type Cidr, networkOf, renderCidr } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import { attrs, ip, layout, NLM_F_CREATE, NLM_F_EXCL, str, struct, u8, u32 } from '../codec.ts';
import { type NetlinkSocket, tolerating } from '../socket.ts';
import { traced } from '../trace.ts';
import { AF_INET, AF_INET6 } from './addr.ts';

/** linux/rtnetlink.h */
const RTM_NEWRULE = 32;
const RTM_DELRULE = 33;
const RTM_GETRULE = 34;
/** linux/fib_rules.h */
const FR_ACT_TO_TBL = 1;
/** linux/fib_rules.h: FR_ACT_BLACKHOLE, FR_ACT_UNREACHABLE, FR_ACT_PROHIBIT */
const DROPS: Readonly<Record<number, string>> = { 6: 'blackhole', 7: 'unreachable', 8: 'prohibit' };

/**
 * linux/fib_rules.h: struct fib_rule_hdr { __u8 family; __u8 dst_len; __u8 src_len; __u8 tos; __u8 table; __u8 res1;
 * __u8 res2; __u8 action; __u32 flags; }
 */
export const fibRuleHdr = struct('fib_rule_hdr', [
  ['family', u8],
  ['dstLength', u8],
  ['srcLength', u8],
  ['tos', u8],
  ['table', u8],
  ['_res1', u8],
  ['_res2', u8],
  ['action', u8],
  ['flags', u32],
]);

/** linux/fib_rules.h, FRA_* */
const ruleAttrs = attrs('rule', {
  dst: [1, ip],
  src: [2, ip],
  iifname: [3, str],
  priority: [6, u32],
  fwmark: [10, u32],
  table: [15, u32],
  fwmask: [16, u32],
  oifname: [17, str],
  l3mdev: [19, u8],
});

/** RTM_NEWRULE, RTM_DELRULE and RTM_GETRULE. */
const ruleMessage = traced(
  'NETLINK_ROUTE',
  { 32: 'RTM_NEWRULE', 33: 'RTM_DELRULE', 34: 'RTM_GETRULE' },
  layout(fibRuleHdr, ruleAttrs),
);

/** A rule that directs packets to a routing table. */
export interface Rule {
  readonly family: 4 | 6;
  readonly priority: number;
  readonly table: number;
  readonly from: Cidr | undefined;
  readonly to: Cidr | undefined;
  readonly iif: string | undefined;
  readonly oif: string | undefined;
  readonly mark: number | undefined;
  /** Directs packets to the table of the VRF that their interface belongs to; `table` is 0. */
  readonly isL3mdev: boolean;
  /** How it drops packets, as `ip rule` names it; undefined: it directs them to a table. */
  readonly drops?: string | undefined;
}

/** Rules of both families. Same as: `ip rule` and `ip -6 rule` */
export function listRules(socket: NetlinkSocket): Rule[] {
  const bodies = socket.dump({ op: 'list rules', type: RTM_GETRULE, body: ruleMessage.encode({}, {}) });
  return bodies.map(body => {
    const { header, attrs: own } = ruleMessage.decode(body);
    return {
      family: header.family === AF_INET ? 4 : 6,
      priority: own.priority ?? 0,
      table: own.table ?? header.table,
      from: own.src && { ip: own.src, prefix: header.srcLength },
      to: own.dst && { ip: own.dst, prefix: header.dstLength },
      iif: own.iifname,
      oif: own.oifname,
      mark: own.fwmark,
      isL3mdev: own.l3mdev === 1,
      drops: DROPS[header.action],
    };
  });
}

/** A rule for packets from a source subnet. */
export interface SourceRule {
  readonly from: Cidr;
  readonly table: number;
  /** Lower comes first. When absent on adding, the kernel takes one below all existing rules except the first. */
  readonly priority?: number;
}

/** Adds a rule; EEXIST when the same rule exists already. Same as: `ip rule add from <from> lookup <table>` */
export function addRule(socket: NetlinkSocket, rule: SourceRule): void {
  const op = `add rule from ${renderCidr(rule.from)} lookup ${rule.table}`;
  socket.request({ op, type: RTM_NEWRULE, flags: NLM_F_CREATE | NLM_F_EXCL, body: encodeRule(rule) });
}

/**
 * Deletes a rule, or without a priority the first one that matches; a missing one is ignored.
 * Same as: `ip rule del from <from> lookup <table> [priority <priority>]`
 */
export function removeRule(socket: NetlinkSocket, rule: SourceRule): void {
  const op = `delete rule from ${renderCidr(rule.from)} lookup ${rule.table}`;
  tolerating([Errno.ENOENT], () => socket.request({ op, type: RTM_DELRULE, body: encodeRule(rule) }));
}

/** The kernel's priority for the rule of VRFs, before every other rule but that of the local table; drivers/net/vrf.c, FIB_RULE_PREF */
const L3MDEV_PRIORITY = 1000;

/**
 * Adds the rule without which no packet uses the table of a VRF; the kernel adds it with the first VRF of a namespace. An existing
 * one is kept.
 * Same as: `ip [-6] rule add l3mdev pref 1000`
 */
export function addL3mdevRule(socket: NetlinkSocket, family: 4 | 6): void {
  const body = ruleMessage.encode(
    { family: family === 4 ? AF_INET : AF_INET6, action: FR_ACT_TO_TBL },
    { l3mdev: 1, priority: L3MDEV_PRIORITY },
  );
  const op = `add IPv${family} rule for VRFs`;
  tolerating([Errno.EEXIST], () =>
    socket.request({ op, type: RTM_NEWRULE, flags: NLM_F_CREATE | NLM_F_EXCL, body }),
  );
}

/** Formats a rule as `ip rule` does: `100: from 10.1.0.2/32 lookup 1000`. */
export function renderRule(rule: Rule): string {
  const { priority, from, to, iif, oif, mark, table } = rule;
  return [
    `${priority}: from ${from ? renderCidr(from) : 'all'}`,
    ...(to ? [`to ${renderCidr(to)}`] : []),
    ...(mark ? [`fwmark 0x${mark.toString(16)}`] : []),
    ...(iif ? [`iif ${iif}`] : []),
    ...(oif ? [`oif ${oif}`] : []),
    rule.drops ?? (rule.isL3mdev ? 'lookup [l3mdev-table]' : `lookup ${table}`),
  ].join(' ');
}

/** The command that deletes it. */
export function ruleDeletion(rule: Rule): string {
  return `ip${rule.family === 6 ? ' -6' : ''} rule del priority ${renderRule(rule).replace(': ', ' ')}`;
}

function encodeRule({ from, table, priority }: SourceRule): Uint8Array {
  return ruleMessage.encode(
    {
      family: from.ip.family === 4 ? AF_INET : AF_INET6,
      srcLength: from.prefix,
      // Tables above 255 only fit into the attribute.
      table: table < 256 ? table : 0,
      action: FR_ACT_TO_TBL,
    },
    {
      src: networkOf(from),
      ...(priority === undefined ? {} : { priority }),
      ...(table < 256 ? {} : { table }),
    },
  );
}
