// What does this host hold, in the numbers of the daemon's metrics: attachments, records of the dead, addresses?
import { existsSync } from 'node:fs';
import { parseNetwork } from '../../chain/conflist.ts';
import { listAttachments } from '../../chain/result-cache.ts';
import { rangesOf } from '../../ipam/range-use.ts';
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
    ranges: [...lists.values()].flatMap(rangesIn),
  };
}

function rangesIn(source: string): RangeUse[] {
  try {
    return rangesOf(parseNetwork(source));
  } catch {
    // A list of another time: no number is better than a wrong one.
    return [];
  }
}
