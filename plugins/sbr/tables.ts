// Which routing table does an address get, and which one does it already have?
import { type Cidr, networkOf } from '../../src/net/cidr.ts';
import { sameIp } from '../../src/net/ip.ts';
import { type Route, RT_TABLE_MAIN } from '../../src/netlink/rtnl/route.ts';
import type { Rule } from '../../src/netlink/rtnl/rule.ts';
import { RESERVED_TABLES } from './config.ts';

/** The current state of the namespace. */
export interface Present {
  readonly index: number;
  readonly rules: readonly Rule[];
  readonly routes: readonly Route[];
}

const FIRST_TABLE = 100;

/** Whether a rule is one of ours for the address: it has no other selector, and refers to the table, or to any of ours. */
export function isSourceRule(rule: Rule, from: Cidr, table: number | undefined): boolean {
  if (!rule.from || rule.from.prefix !== from.prefix || !sameIp(rule.from.ip, from.ip)) return false;
  if (rule.to || rule.iif || rule.oif || rule.mark) return false;
  return table === undefined
    ? rule.table >= FIRST_TABLE && !RESERVED_TABLES.includes(rule.table)
    : rule.table === table;
}

/** Tables that no rule and no route of either family mentions. */
export function* freeTables({ rules, routes }: Present): Generator<number, never> {
  const used = new Set([...rules, ...routes].map(({ table }) => table ?? RT_TABLE_MAIN));
  for (let table = FIRST_TABLE; ; table++) {
    if (!used.has(table) && !RESERVED_TABLES.includes(table)) yield table;
  }
}

/**
 * The table that an address had before its rule was deleted: one that no rule refers to, whose routes all use this interface and
 * include that of the address's subnet. Two addresses of one subnet cannot be distinguished.
 */
export function findLostTable(address: Cidr, all: readonly Cidr[], present: Present): number | undefined {
  if (all.some(other => other !== address && isSameSubnet(other, address))) return undefined;
  const { index, rules, routes } = present;
  const led = new Set(rules.map(({ table }) => table));
  const isLost = (table: number) =>
    table >= FIRST_TABLE &&
    !RESERVED_TABLES.includes(table) &&
    !led.has(table) &&
    routes.every(route => route.table !== table || route.oif === index);
  return routes.find(({ table = RT_TABLE_MAIN, dst, gateway }) => {
    return gateway === undefined && isSameSubnet(dst, address) && isLost(table);
  })?.table;
}

/** Whether both are in the same subnet, ignoring host bits. */
export function isSameSubnet(a: Cidr, b: Cidr): boolean {
  return a.prefix === b.prefix && sameIp(networkOf(a), networkOf(b));
}
