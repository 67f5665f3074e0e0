// Which single addresses and parts of a subnet does a list name, and in which order is a free one looked for?
import {
  type Cidr,
  cidrContains,
  type Family,
  findCidr,
  findIp,
  type Ip,
  lastOf,
  networkOf,
  offsetIp,
  renderCidr,
} from '../net/ip.ts';

/** Consecutive addresses, both ends included. */
export type Stretch = readonly [from: Ip, to: Ip];

/**
 * Parses a list of addresses (`10.1.0.5`), subnets (`10.1.0.8/29`) and stretches (`10.1.0.20-10.1.0.29`), all within one subnet.
 * @param key names the list in messages
 * @returns ascending, without overlaps; neighbours are joined
 * @throws Error naming the entry that is wrong
 */
export function parseStretches(texts: readonly string[], key: string, subnet: Cidr): Stretch[] {
  const stretches = texts.map(text => {
    const stretch = parseStretch(text, key);
    if (stretch.every(ip => cidrContains(subnet, ip))) return stretch;
    throw new Error(`"${key}" holds ${JSON.stringify(text)}, which is not in network ${renderCidr(subnet)}`);
  });
  return joined(stretches);
}

/** Those of one family. @throws Error if one cannot be used, of whichever family */
export function stretchesOf(texts: readonly string[], key: string, family: Family): Stretch[] {
  return joined(texts.map(text => parseStretch(text, key)).filter(([from]) => from.family === family));
}

/** What is left of a stretch without others, which are ascending and do not overlap. */
export function without([from, to]: Stretch, others: readonly Stretch[]): Stretch[] {
  const left: Stretch[] = [];
  let next = from;
  for (const [start, end] of others) {
    if (end.value < next.value || start.value > to.value) continue;
    if (start.value > next.value) left.push([next, offsetIp(start, -1n)]);
    if (end.value >= to.value) return left;
    next = offsetIp(end, 1n);
  }
  return [...left, [next, to]];
}

/**
 * Stretches in search order: from the address after `last` through all of them and around, or from the very first one. `last` itself
 * comes last, so released addresses stay unused as long as possible.
 */
export function inSearchOrder(whole: readonly Stretch[], last: Ip | undefined): readonly Stretch[] {
  const at = last === undefined ? -1 : whole.findIndex(stretch => stretchContains(stretch, last));
  const [from, to] = whole[at] ?? [];
  if (last === undefined || from === undefined || to === undefined) return whole;
  const rest: Stretch[] = last.value < to.value ? [[offsetIp(last, 1n), to]] : [];
  return [...rest, ...whole.slice(at + 1), ...whole.slice(0, at), [from, last]];
}

/** True when the address lies between the ends, or is one of them. */
export function stretchContains([from, to]: Stretch, ip: Ip): boolean {
  return ip.family === from.family && ip.value >= from.value && ip.value <= to.value;
}

function parseStretch(text: string, key: string): Stretch {
  const subnet = findCidr(text);
  if (subnet) return [networkOf(subnet), lastOf(subnet)];
  const [first = '', last = first, ...more] = text.split('-');
  const [from, to] = [findIp(first.trim()), findIp(last.trim())];
  const isWhole = from && from.family === to?.family && from.value <= to.value && more.length === 0;
  if (isWhole) return [from, to];
  throw new Error(
    `"${key}" holds ${JSON.stringify(text)}, expected an address, a subnet, or two addresses joined by "-"`,
  );
}

/** Stretches of one family, ascending, without overlaps; neighbours are joined. */
export function joined(stretches: readonly Stretch[]): Stretch[] {
  const ascending = [...stretches].sort(
    ([a], [b]) => Number(a.value - b.value > 0n) - Number(a.value - b.value < 0n),
  );
  const result: Stretch[] = [];
  for (const [from, to] of ascending) {
    const last = result.at(-1);
    if (last === undefined || from.value > last[1].value + 1n) result.push([from, to]);
    else if (to.value > last[1].value) result[result.length - 1] = [last[0], to];
  }
  return result;
}
