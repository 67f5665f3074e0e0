// What does this host hold, in the numbers of the daemon's metrics: attachments, records of the dead, addresses?
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parseNetwork } from '../../chain/conflist.ts';
import { listAttachments } from '../../chain/result-cache.ts';
import { isObject } from '../../cni/json.ts';
import { listLeases } from '../../ipam/lease-files.ts';
import { DEFAULT_DATA_DIR } from '../../ipam/lease-store.ts';
import { findCidr, lastOf, networkOf } from '../../net/cidr.ts';
import { findIp, type Ip } from '../../net/ip.ts';
import type { RangeUse } from '../../observe/metrics.ts';

/** What is looked up at once, for all metrics of a page. */
export interface HostFacts {
  readonly attachments: ReadonlyMap<string, number>;
  /** Attachments whose namespace is gone: nobody has run their DEL. */
  readonly leaked: number;
  readonly ranges: readonly RangeUse[];
}

/** A page is made of several metrics; and whoever asks all the time shall not have all files read each time. */
const KEEP_MS = 5_000;

/**
 * A function that looks at the result caches, but not twice within five seconds.
 * @param cacheDirs of the host's runtimes, and of what the delegate runner attaches
 */
export function hostFactsIn(cacheDirs: readonly string[]): () => HostFacts {
  let known: HostFacts | undefined;
  let knownAt = 0;
  return () => {
    if (known === undefined || performance.now() - knownAt > KEEP_MS) {
      known = look(cacheDirs);
      knownAt = performance.now();
    }
    return known;
  };
}

function look(cacheDirs: readonly string[]): HostFacts {
  const records = cacheDirs.flatMap(dir => listAttachments(dir).attachments);
  const attachments = new Map<string, number>();
  for (const { network } of records) attachments.set(network, (attachments.get(network) ?? 0) + 1);
  // All attachments of a network have the same list, but for one that was changed meanwhile: the last one counts.
  const lists = new Map(
    records.flatMap(({ network, source }) => (source ? [[network, source] as const] : [])),
  );
  return {
    attachments,
    leaked: records.filter(({ netns }) => netns !== '' && !existsSync(netns)).length,
    ranges: [...lists].flatMap(([network, source]) => rangesOf(network, source)),
  };
}

/** The ranges of host-local, wherever in the list it is asked. */
function rangesOf(network: string, source: string): RangeUse[] {
  try {
    return parseNetwork(source).plugins.flatMap(({ conf: { ipam } }) => {
      if (!isObject(ipam) || ipam.type !== 'host-local') return [];
      const dataDir = typeof ipam.dataDir === 'string' && ipam.dataDir ? ipam.dataDir : DEFAULT_DATA_DIR;
      const held = listLeases(join(dataDir, network)).flatMap(text => findIp(text) ?? []);
      const sets = Array.isArray(ipam.ranges) ? ipam.ranges.flat() : [];
      return [ipam, ...sets].flatMap(range => useOf(network, range, held));
    });
  } catch {
    // A list of another time, or a directory that nobody leased from: no number is better than a wrong one.
    return [];
  }
}

function useOf(network: string, range: unknown, held: readonly Ip[]): RangeUse[] {
  if (!isObject(range) || typeof range.subnet !== 'string') return [];
  const subnet = findCidr(range.subnet);
  if (subnet === undefined) return [];
  // Neither the network's own address nor, in IPv4, the one for all of it is handed out.
  const lowest = endOf(range.rangeStart) ?? networkOf(subnet).value + 1n;
  const highest = endOf(range.rangeEnd) ?? lastOf(subnet).value - (subnet.ip.family === 4 ? 1n : 0n);
  const used = held.filter(
    ({ family, value }) => family === subnet.ip.family && value >= lowest && value <= highest,
  );
  const ends = range.rangeStart || range.rangeEnd ? ` ${range.rangeStart ?? ''}-${range.rangeEnd ?? ''}` : '';
  const size = highest >= lowest ? highest - lowest + 1n : 0n;
  return [{ network, range: `${range.subnet}${ends}`, used: used.length, size: Number(size) }];
}

function endOf(text: unknown): bigint | undefined {
  return typeof text === 'string' ? findIp(text)?.value : undefined;
}
