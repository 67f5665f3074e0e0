// What does a host hold that attachments may leak?

import fs from 'node:fs';
import { waitingBridges } from '../helpers/dump.ts';
import type { Container, Lab } from '../helpers/netns.ts';

/** Names of objects, by kind. */
export type Inventory = Readonly<Record<string, readonly string[]>>;

/** Everything that may be leaked, by kind. */
export async function inventory(lab: Lab, containers: readonly Container[]): Promise<Inventory> {
  const rows = await lab.nft(lab.host, 'list', 'ruleset');
  const elements = rows.flatMap(row => {
    const set = row.set ?? row.map;
    return ((set?.elem ?? []) as unknown[]).map(elem => `${set.table} ${set.name} ${JSON.stringify(elem)}`);
  });
  const inside = await Promise.all(containers.map(container => lab.ip(container, 'link')));
  const found = fs.readdirSync(lab.tmp, { recursive: true, encoding: 'utf8' });
  // Notes of ADDs are symbolic links that lead nowhere.
  const files = found.filter(file => !fs.lstatSync(`${lab.tmp}/${file}`).isDirectory());
  const isLease = (file: string): boolean => /^leases\/[^/]+\/[0-9a-f]+[.:][0-9a-f.:]+$/.test(file);
  // Kept on purpose: where the range continues, locks, which boot it is, an index that is as large as the leases are many,
  // what the last GC knew, who has the socket and which calls it has begun, the last requests, of a fixed number, and the history.
  const isKept = (file: string): boolean =>
    /\/(last_reserved_ip\.\d+|lock|\.catena-[a-z]+|boot|caches\/\w+|history\/(lists|events(\.1)?))$|\.lock$|^run\/gc\/\w+$|^run\/catena\.sock\.(seat|calls\..*)$|^run\/traces\/\w+\.json$/.test(
      file,
    );
  const links = await lab.ip(lab.host, 'link');
  const waiting = waitingBridges(links);
  return {
    'links on the host': links.map(link => String(link.ifname)).filter(name => !waiting.includes(name)),
    'links in containers': inside.flat().map(link => link.ifname),
    'elements of sets and maps': elements,
    leases: files.filter(isLease),
    'records of the cache': files.filter(file => file.startsWith('cni/')).filter(file => !isKept(file)),
    'other files': files.filter(file => !file.startsWith('cni/') && !isLease(file) && !isKept(file)),
  };
}

/** What exists now and did not before. */
export function leftOver(before: Inventory, after: Inventory): Inventory {
  const left = Object.entries(after).map(([kind, names]) => {
    return [kind, names.filter(one => !before[kind]?.includes(one))] as const;
  });
  return Object.fromEntries(left);
}
