// How are routing policy rules listed, added and removed?
import { asWord } from '../../net/interface.ts';
import { type Cidr, FAMILIES, networkOf, renderCidr } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import { attrs, ip, str, struct, u8, u32 } from '../codec.ts';
import { type NetlinkSocket, tolerating } from '../socket.ts';
import { AF, messages } from './message.ts';

/** linux/fib_rules.h */
const FR_ACT_TO_TBL = 1;
const FIB_RULE_INVERT = 2;
/**
 * Selectors without a name here: FRA_TUN_ID, FRA_UID_RANGE, FRA_IP_PROTO, FRA_SPORT_RANGE, FRA_DPORT_RANGE, FRA_DSCP, FRA_FLOWLABEL. The
 * kernel tells those that a rule has.
 */
const FURTHER_SELECTORS = [12, 20, 22, 23, 24, 25, 26];
/** linux/fib_rules.h: FR_ACT_BLACKHOLE, FR_ACT_UNREACHABLE, FR_ACT_PROHIBIT */
const DROPS: Readonly<Record<number, string>> = { 6: 'blackhole', 7: 'unreachable', 8: 'prohibit' };

/** linux/fib_rules.h */
export const fibRuleHdr = struct('fib_rule_hdr', {
  family: u8,
  dstLength: u8,
  srcLength: u8,
  tos: u8,
  table: u8,
  _res1: u8,
  _res2: u8,
  action: u8,
  flags: u32,
});

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
  protocol: [21, u8],
});

const ruleMessage = messages('RULE', fibRuleHdr, ruleAttrs);

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
  /** Has selectors besides these, such as a port, or is for what they do not select. */
  readonly more?: boolean | undefined;
  /** Directs packets to the table of the VRF that their interface belongs to; `table` is 0. */
  readonly isL3mdev: boolean;
  /** How it drops packets, as `ip rule` names it; undefined: it directs them to a table. */
  readonly drops?: string | undefined;
  /** Which program made it: RTPROT_*, as of routes. Linux before 4.17 tells none. */
  readonly protocol?: number | undefined;
}

/** Whether the source alone decides which packets it is for. */
export function isBySource({ to, iif, oif, mark, more }: Rule): boolean {
  return !to && !iif && !oif && !mark && !more;
}

/** Rules of both families, without those of multicast routing, which have families of their own. Same as: `ip rule` and `ip -6 rule` */
export function listRules(socket: NetlinkSocket): Rule[] {
  const all = ruleMessage.list(socket, 'list rules');
  return all.filter(({ header }) => FAMILIES.some(family => AF[family] === header.family)).map(toRule);
}

function toRule({ header, attrs: own }: ReturnType<typeof ruleMessage.decode>): Rule {
  return {
    family: header.family === AF[4] ? 4 : 6,
    priority: own.priority ?? 0,
    table: own.table ?? header.table,
    from: own.src && { ip: own.src, prefix: header.srcLength },
    to: own.dst && { ip: own.dst, prefix: header.dstLength },
    iif: own.iifname,
    oif: own.oifname,
    mark: own.fwmark,
    more:
      header.tos !== 0 ||
      (header.flags & FIB_RULE_INVERT) !== 0 ||
      (own.unknown ?? []).some(({ type }) => FURTHER_SELECTORS.includes(type)),
    isL3mdev: own.l3mdev === 1,
    drops: DROPS[header.action],
    protocol: own.protocol,
  };
}

export interface SourceRule {
  readonly from: Cidr;
  readonly table: number;
  /** Lower comes first. When absent on adding, the kernel takes one below all existing rules except the first. */
  readonly priority?: number;
  /** Names its program, see {@link Rule}; any matches on deleting. */
  readonly protocol?: number;
}

/** Adds a rule; EEXIST when the same rule exists already. Same as: `ip rule add from <from> lookup <table> [protocol <n>]` */
export function addRule(socket: NetlinkSocket, rule: SourceRule): void {
  const op = `add rule from ${renderCidr(rule.from)} lookup ${rule.table}`;
  socket.request(ruleMessage.add(op, ...messageOf(rule)));
}

/**
 * Deletes a rule, or without a priority the first one that matches; a missing one is ignored.
 * Same as: `ip rule del from <from> lookup <table> [priority <priority>]`
 */
export function removeRule(socket: NetlinkSocket, rule: SourceRule): void {
  const op = `delete rule from ${renderCidr(rule.from)} lookup ${rule.table}`;
  tolerating([Errno.ENOENT], () => socket.request(ruleMessage.remove(op, ...messageOf(rule))));
}

/** The kernel's priority for the rule of VRFs, before every other rule but that of the local table; drivers/net/vrf.c, FIB_RULE_PREF */
const L3MDEV_PRIORITY = 1000;

/**
 * Adds the rule without which no packet uses the table of a VRF; the kernel adds it with the first VRF of a namespace. An existing
 * one is kept.
 * Same as: `ip [-6] rule add l3mdev pref 1000`
 */
export function addL3mdevRule(socket: NetlinkSocket, family: 4 | 6): void {
  const [header, own] = [
    { family: AF[family], action: FR_ACT_TO_TBL },
    { l3mdev: 1, priority: L3MDEV_PRIORITY },
  ];
  const request = ruleMessage.add(`add IPv${family} rule for VRFs`, header, own);
  tolerating([Errno.EEXIST], () => socket.request(request));
}

/** Formats a rule as `ip rule` does: `100: from 10.1.0.2/32 lookup 1000`. */
export function renderRule(rule: Rule): string {
  const { priority, from, to, iif, oif, mark, table } = rule;
  return [
    `${priority}: from ${from ? renderCidr(from) : 'all'}`,
    ...(to ? [`to ${renderCidr(to)}`] : []),
    ...(mark ? [`fwmark 0x${mark.toString(16)}`] : []),
    ...(iif ? [`iif ${asWord(iif)}`] : []),
    ...(oif ? [`oif ${asWord(oif)}`] : []),
    rule.drops ?? (rule.isL3mdev ? 'lookup [l3mdev-table]' : `lookup ${table}`),
  ].join(' ');
}

export function ruleDeletion(rule: Rule): string {
  return `ip${rule.family === 6 ? ' -6' : ''} rule del priority ${renderRule(rule).replace(': ', ' ')}`;
}

function messageOf({ from, table, priority, protocol }: SourceRule): Parameters<typeof ruleMessage.encode> {
  const { ip, prefix } = from;
  // Tables above 255 only fit into the attribute.
  const [small, large] = table < 256 ? [table, undefined] : [0, table];
  return [
    { family: AF[ip.family], srcLength: prefix, table: small, action: FR_ACT_TO_TBL },
    { src: networkOf(from), priority, table: large, protocol },
  ];
}
