// Is there all that was promised, and nothing that must be gone?

import { createHash } from 'node:crypto';
import type { Violation } from './history.ts';
import type { Look } from './look.ts';
import { addressesOf, type Entry, hostDevicesOf, type Model } from './model.ts';
import { keyOf, NETS, noteOf, podId } from './networks.ts';

/** Compares what callers were told with what is there, but for traffic. */
export function compare(model: Model, seen: Look): Violation[] {
  const found: Violation[] = [];
  for (const entry of model.entries.values()) {
    const say = (rule: string, problems: readonly string[]): void => {
      const text = `${keyOf(entry)} (${entry.by}): ${problems.join('; ')}`;
      if (problems.length) found.push({ rule, text });
    };
    if (entry.state === 'present') say('present: something is missing', missing(entry, model, seen));
    if (entry.state === 'absent') say('absent: something is left', left(entry, model, seen));
    if (entry.state === 'whole') {
      const [lacks, has] = [missing(entry, model, seen), left(entry, model, seen)];
      if (lacks.length && has.length) {
        say('whole: it is there in part', [`lacks ${lacks.join(', ')}`, `has ${has.join(', ')}`]);
      }
    }
  }
  return [...found, ...doubled(model, seen)];
}

/** What of an attachment should be there and is not. */
export function missing(entry: Entry, model: Model, seen: Look): string[] {
  const { net, pod, slot, result, rates } = entry;
  const { ifname, bridge, name, sbr } = NETS[net];
  const problems: string[] = [];
  if (result === undefined) return ['it has no result'];
  const owner = `${podId(pod)}/${ifname}`;
  for (const address of entry.leaseLost ? [] : addressesOf(entry)) {
    const lease = seen.leases.find(one => one.net === name && sameAddress(one.address, address));
    if (lease?.owner !== owner) problems.push(`lease of ${address} (${lease?.owner ?? 'none'})`);
  }
  if (!model.isInPlace(entry)) return problems;
  const inside = seen.inside.get(slot)?.find(device => device.ifname === ifname);
  if (inside === undefined) return [...problems, `interface ${ifname}`];
  for (const { address } of result.ips ?? []) {
    const has = (inside.addr_info ?? []).some(one => sameAddress(`${one.local}/${one.prefixlen}`, address));
    if (!has) problems.push(`address ${address} of ${ifname}`);
  }
  for (const address of addressesOf(entry)) {
    const isRouted =
      sbr === undefined || !address.startsWith(sbr) || seen.sources.get(slot)?.includes(address);
    if (!isRouted) problems.push(`rule from ${address} in its namespace`);
  }
  for (const device of hostDevicesOf(entry)) {
    const found = seen.host.find(one => one.ifname === device);
    if (found === undefined) problems.push(`device ${device} of the host`);
    else if (device.startsWith('veth') && found.master !== bridge)
      problems.push(`port ${device} of ${bridge}`);
    if (rates.length > 0 && found !== undefined) {
      const queue = seen.queues.find(one => one.dev === device && one.kind === 'tbf');
      if (!rates.includes(queue?.options?.rate ?? 0))
        problems.push(`rate of ${device} (${queue?.options?.rate ?? 'none'})`);
    }
  }
  return problems;
}

/** The elements with this comment. @param rules as of {@link Look} */
function elementsOf(rules: string, note: string): string[] {
  // Most notes are nowhere, and the text is long.
  if (!rules.includes(`"${note}"`)) return [];
  const { nftables } = JSON.parse(rules) as { nftables: Record<string, Listed>[] };
  return nftables.flatMap(object => {
    const set = object.set ?? object.map;
    const own = (set?.elem ?? []).filter(element => JSON.stringify(element).includes(`"${note}"`));
    return own.map(element => `element ${JSON.stringify(element)} of ${set?.table} ${set?.name}`);
  });
}

/** A set or map of `nft -j`. */
interface Listed {
  readonly table?: string;
  readonly name?: string;
  readonly elem?: readonly unknown[];
}

/** What of an attachment is there. */
export function left(entry: Entry, model: Model, seen: Look): string[] {
  const { net, pod, slot } = entry;
  const { ifname, name, sbr } = NETS[net];
  const note = noteOf(entry);
  const problems: string[] = [];
  const owner = `${podId(pod)}/${ifname}`;
  for (const { net: of, address, owner: by } of seen.leases) {
    if (of === name && (by === owner || by === podId(pod))) problems.push(`lease of ${address}`);
  }
  const ifb = `bwp${createHash('sha512')
    .update(`${name}${podId(pod)}`)
    .digest('hex')
    .slice(0, 12)}`;
  const own = new Set([ifb, ...hostDevicesOf(entry)]);
  for (const device of seen.host) {
    if (device.ifalias === note || own.has(device.ifname))
      problems.push(`device ${device.ifname} of the host`);
  }
  problems.push(...elementsOf(seen.rules, note));
  for (const file of seen.files) {
    if (entry.staleRecord && file.startsWith('/var/lib/catena/')) continue;
    // The reference does not know of it; GC or the next ADD replaces it.
    if (entry.byReference && file.startsWith('/run/catena/generations/')) continue;
    if (file.includes(podId(pod)) && file.includes(ifname)) problems.push(`file ${file}`);
  }
  // Another pod may already be in that namespace.
  const shared = model
    .list('present', 'whole', 'unknown')
    .some(other => other.net === net && other.slot === slot);
  if (!shared && model.isInPlace(entry)) {
    const inside = seen.inside.get(slot)?.find(device => device.ifname === ifname);
    if (inside !== undefined) problems.push(`interface ${ifname}`);
    const sources = sbr === undefined ? [] : (seen.sources.get(slot) ?? []);
    for (const source of sources.filter(one => one.startsWith(sbr ?? '')))
      problems.push(`rule from ${source} in its namespace`);
  }
  return problems;
}

/** What is held twice. */
function doubled(model: Model, seen: Look): Violation[] {
  const found: Violation[] = [];
  const held = new Map<string, string>();
  const hold = (what: string, by: string): void => {
    const other = held.get(what);
    if (other !== undefined && other !== by)
      found.push({ rule: 'held twice', text: `${what}: by ${other} and ${by}` });
    held.set(what, by);
  };
  for (const entry of model.list('present')) {
    if (entry.leaseLost) continue;
    for (const address of addressesOf(entry)) hold(`address ${address} of net ${entry.net}`, keyOf(entry));
    // A port of a container whose namespace is gone goes to the next that asks for it.
    if (entry.hostPort !== undefined && !entry.portUnsure && !entry.damaged && model.isInPlace(entry))
      hold(`port ${entry.hostPort}`, podId(entry.pod));
  }
  for (const { ifname, ifalias } of seen.host) {
    if (ifalias?.startsWith('catena:net-') && ifname.startsWith('veth')) hold(`name ${ifalias}`, ifname);
  }
  return found;
}

function sameAddress(a: string, b: string): boolean {
  return a.toLowerCase() === b.toLowerCase();
}
