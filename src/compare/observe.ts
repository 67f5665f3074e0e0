// What can be observed in a namespace, under names that do not depend on any order?
import type { Place } from '../lab/lab.ts';
import { namesIn, stateOfDevice } from '../lab/state/devices.ts';
import { describeUnordered } from '../lab/state/nft.ts';
import { renderCidr } from '../net/cidr.ts';
import { type Ip, renderIp } from '../net/ip.ts';
import type { Table } from '../netlink/nft/message.ts';
import { IFA_F_PERMANENT, IFA_F_TENTATIVE, RT_SCOPE_LINK } from '../netlink/rtnl/addr.ts';
import type { Route } from '../netlink/rtnl/route.ts';
import { renderRule } from '../netlink/rtnl/rule.ts';
import { askOn, keyOf, Tables } from '../netlink/tables.ts';
import type { Observation, Observed } from './observation.ts';
import { observeIptables } from './observe-iptables.ts';
import { observeSysctls } from './observe-sysctls.ts';
import { observeTrafficControl } from './observe-traffic-control.ts';
import { toText } from './text.ts';

const TABLE_MAIN = 254;

/** Everything in a namespace except transient state: counters, dynamic neighbours, duplicate address detection. */
export function observePlace(place: Place): Observation {
  const tables = new Tables(askOn(place));
  const nameOf = namesIn(tables);
  const links = tables.links.map(link => {
    const { name, kind, attrs, mac } = link;
    const { master = 'none', ...state } = stateOfDevice(link, nameOf);
    const alias = attrs.alias ? { alias: attrs.alias } : {};
    return [name, { kind: kind || 'device', ...state, ...(mac ? { mac } : {}), master, ...alias }] as const;
  });
  const iptables = observeIptables(place.netns, tables);
  return {
    link: numbered(links),
    address: numbered(observeAddresses(tables, nameOf)),
    route: numbered(tables.routes.flatMap(one => observeRoute(one, nameOf))),
    rule: numbered(tables.policyRules.map(rule => [`IPv${rule.family} ${renderRule(rule)}`, {}] as const)),
    neighbour: numbered(
      tables.neighbours
        .filter(({ ip }) => !isMulticast(ip))
        .map(({ index, ip, mac = 'none' }) => [`${renderIp(ip)} on ${nameOf(index)}`, { mac }] as const),
    ),
    'traffic control': numbered(observeTrafficControl(tables, nameOf)),
    nftables: numbered(observeNft(tables, iptables.tables)),
    iptables: numbered(iptables.rules),
    sysctl: observeSysctls(place.netns),
  };
}

/** Maps names to objects; repeated names get a number. */
function numbered(named: readonly (readonly [string, Observed])[]): Record<string, Observed> {
  const all: Record<string, Observed> = {};
  for (const [name, object] of named) {
    let unique = name;
    for (let n = 2; unique in all; n++) unique = `${name} #${n}`;
    all[unique] = object;
  }
  return all;
}

type NameOf = (index: number) => string;

function observeAddresses({ addresses }: Tables, nameOf: NameOf) {
  return addresses
    .filter(({ cidr, scope }) => !(cidr.ip.family === 6 && scope === RT_SCOPE_LINK))
    .map(({ cidr, index, scope, flags, broadcast, label }) => {
      const steady = flags & ~(IFA_F_PERMANENT | IFA_F_TENTATIVE);
      const object = {
        scope: String(scope),
        flags: String(steady),
        ...(broadcast ? { broadcast: renderIp(broadcast) } : {}),
        ...(label ? { label } : {}),
      };
      return [`${renderCidr(cidr)} on ${nameOf(index)}`, object] as const;
    });
}

function observeRoute(route: Route, nameOf: NameOf): (readonly [string, Observed])[] {
  const { dst, oif, gateway, ways, source, table = TABLE_MAIN, scope, priority, mtu, advmss } = route;
  if (dst.ip.family === 6 && (dst.ip.value >> 118n === 0x3fan || isMulticast(dst.ip))) return [];
  const at = [
    `${dst.prefix === 0 ? `default IPv${dst.ip.family}` : renderCidr(dst)} on ${nameOf(oif)}`,
    ...(table === TABLE_MAIN ? [] : [`in table ${table}`]),
  ];
  const nexthops = ways?.map(
    way => `${way.gateway ? renderIp(way.gateway) : 'direct'} on ${nameOf(way.oif)}`,
  );
  const object: Record<string, string> = {
    via: gateway ? renderIp(gateway) : (nexthops?.join(', ') ?? 'none'),
    ...(source ? { source: renderIp(source) } : {}),
    scope: String(scope ?? 0),
    metric: String(priority ?? 0),
    ...(mtu ? { mtu: String(mtu) } : {}),
    ...(advmss ? { advmss: String(advmss) } : {}),
  };
  return [[at.join(' '), object]];
}

/** The kernel adds these entries itself. */
function isMulticast({ family, value }: Ip): boolean {
  return family === 6 ? value >> 120n === 0xffn : value >> 28n === 0xen;
}

/**
 * Tables, chains, rules, sets and elements.
 * @param hidden tables that are observed in another way: `ip nat`
 */
function observeNft(tables: Tables, hidden: ReadonlySet<string>): (readonly [string, Observed])[] {
  const isShown = ({ table }: { readonly table: Table }) => !hidden.has(keyOf(table));
  const objects = describeUnordered(tables).flatMap(({ key, words, state, parent }) => {
    if (hidden.has((parent ?? key).replace(/^table /, ''))) return [];
    return [[`${words}${key.startsWith('element') ? ` of ${parent}` : ''}`, state ?? {}] as const];
  });
  const chains = tables.nftChains.filter(isShown).map(({ table, attrs }) => {
    const { name = '', table: _, unknown: __, ...more } = attrs;
    const shown = Object.entries(more).filter(([key]) => !VOLATILE.includes(key));
    const texts = Object.fromEntries(shown.map(([key, value]) => [key, toText(value)]));
    return [`chain ${name} in table ${keyOf(table)}`, texts] as const;
  });
  const places = new Map<string, number>();
  const rules = tables.nftRules.filter(isShown).map(({ table, attrs }) => {
    const { chain = '', comment, expressions = [] } = attrs;
    const chainName = `chain ${chain} in table ${keyOf(table)}`;
    const place = (places.get(chainName) ?? 0) + 1;
    places.set(chainName, place);
    const steps = expressions.filter(({ name }) => name !== 'counter').map(toText);
    const object = { steps: steps.join(' '), ...(comment ? { comment } : {}) };
    return [`rule ${place} of ${chainName}`, object] as const;
  });
  return [...objects, ...chains, ...rules];
}

/** Numbers that the kernel assigns or counts. */
const VOLATILE = ['handle', 'use', 'counters', 'id'];
