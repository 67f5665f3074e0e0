// Which names and numbers are chance, and what are they called so that both twins call them alike?

import type { Row } from '../helpers/netns.ts';

const MAC = /\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b/g;
const VETH = /\bveth[0-9a-f]{8}\b/g;
const LINK_LOCAL = /\bfe80::[0-9a-f:]+/g;

// Hardware addresses that are none of anybody's.
const FIXED = ['00:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff', '01:80:c2:00:00:00'];

/**
 * Renames random interface names to `veth#1`, random hardware addresses to `mac of <interface>`, link-local addresses made
 * of them likewise, and the twin's own paths.
 *
 * @param given text in which hardware addresses are not random: the row itself
 * @param paths what the twin calls its namespaces and directories → their common name
 */
export function normalise<T>(observed: T, given: string, paths: ReadonlyMap<string, string>): T {
  let text = JSON.stringify(observed);
  for (const [own, common] of paths) text = text.replaceAll(own, common);
  text = numberVeths(text);
  const fixed: ReadonlySet<string> = new Set([...FIXED, ...(given.toLowerCase().match(MAC) ?? [])]);
  const macs = nameMacs(JSON.parse(text), fixed);
  text = text
    .replace(LINK_LOCAL, address => {
      const mac = macOfLinkLocal(address);
      return mac === undefined ? address : `fe80::(${macs.get(mac) ?? 'an address of before'})`;
    })
    .replace(MAC, mac => macs.get(mac) ?? (fixed.has(mac) ? mac : 'a hardware address of before'));
  return JSON.parse(text);
}

function numberVeths(text: string): string {
  const names = new Map<string, string>();
  return text.replace(VETH, name => {
    if (!names.has(name)) names.set(name, `veth#${names.size + 1}`);
    return names.get(name) ?? name;
  });
}

/** A bridge may take the address of a port, so ports come first; who had an address first names it. */
function nameMacs(observed: unknown, fixed: ReadonlySet<string>): Map<string, string> {
  const holders: [mac: string, holder: string][] = [];
  collectHolders(observed, [], holders);
  const isPort = (holder: string): boolean => /veth#|eth/.test(holder);
  const ordered = [
    ...holders.filter(([, holder]) => isPort(holder)),
    ...holders.filter(([, holder]) => !isPort(holder)),
  ];
  const names = new Map<string, string>();
  const taken = new Set<string>();
  for (const [mac, holder] of ordered) {
    if (fixed.has(mac) || names.has(mac)) continue;
    let name = `mac of ${holder}`;
    while (taken.has(name)) name += "'";
    taken.add(name);
    names.set(mac, name);
  }
  return names;
}

/** Finds `{name, mac, sandbox}` of results, and links, which are kept below namespace and name. */
function collectHolders(value: unknown, path: readonly string[], holders: [string, string][]): void {
  if (typeof value !== 'object' || value === null) return;
  const row = value as Row;
  if (typeof row.mac === 'string' && typeof row.name === 'string') {
    holders.push([row.mac, `${row.sandbox ?? 'host'}/${row.name}`]);
  } else if (row.link?.link_type === 'ether') {
    holders.push([row.link.address, `${path.at(-3)}/${path.at(-1)}`]);
  }
  for (const [name, child] of Object.entries(row)) collectHolders(child, [...path, name], holders);
}

function macOfLinkLocal(address: string): string | undefined {
  const words = address.slice('fe80::'.length).split(':');
  if (words.length !== 4) return undefined;
  const hex = words.map(word => word.padStart(4, '0')).join('');
  if (hex.slice(6, 10) !== 'fffe') return undefined;
  const bytes = [hex.slice(0, 6), hex.slice(10)].join('').match(/../g) ?? [];
  const first = (Number.parseInt(bytes[0] ?? '', 16) ^ 2).toString(16).padStart(2, '0');
  return [first, ...bytes.slice(1)].join(':');
}
