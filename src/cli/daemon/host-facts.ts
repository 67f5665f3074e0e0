// Which attachments, leaks and addresses does this host have, for the daemon's metrics?
import { existsSync } from 'node:fs';
import { parseNetwork } from '../../chain/config/conflist.ts';
import { listKnown } from '../../chain/records/known-attachments.ts';
import { type FindAbout, seenPoolsOf } from '../../cni/network-plugins.ts';
import type { SeenPool } from '../../cni/plugin-about.ts';
import { type RangeUse, rangeUsesOf } from '../../ipam/range-use.ts';

/** The facts that are read together, for all metrics of a page. */
export interface HostFacts {
  readonly attachments: ReadonlyMap<string, number>;
  /** Attachments whose namespace is gone and whose DEL never ran. */
  readonly leaked: number;
  readonly ranges: readonly RangeUse[];
  /** Pools of a whole cluster, as this node saw them last. */
  readonly pools: readonly (SeenPool & { readonly network: string })[];
}

/** A page consists of several metrics, and frequent requests must not read all files each time. */
const KEEP_MS = 5_000;

/**
 * Returns a function that reads the result caches, at most once in five seconds.
 * @param cacheDirs cache directories of the host's runtimes and of the delegate runner
 * @param findAbout what is known about the plugins, from which the ranges are taken
 */
export function hostFactsIn(cacheDirs: readonly string[], findAbout: FindAbout): () => HostFacts {
  let known: HostFacts | undefined;
  let knownAt = 0;
  return () => {
    if (known === undefined || performance.now() - knownAt > KEEP_MS) {
      known = look(cacheDirs, findAbout);
      knownAt = performance.now();
    }
    return known;
  };
}

function look(cacheDirs: readonly string[], findAbout: FindAbout): HostFacts {
  const records = cacheDirs
    .flatMap(cacheDir => listKnown({ cacheDir, journals: [] }).attachments)
    .map(({ known }) => known);
  const attachments = new Map<string, number>();
  for (const { network } of records) attachments.set(network, (attachments.get(network) ?? 0) + 1);
  // The attachments of a network usually share one conflist. If it was changed in between, the last one counts.
  const lists = new Map(
    records.flatMap(({ network, source }) => (source ? [[network, source] as const] : [])),
  );
  return {
    attachments,
    leaked: records.filter(({ netns }) => netns !== '' && !existsSync(netns)).length,
    ranges: [...lists.values()].flatMap(source => rangesIn(source, findAbout)),
    pools: [...lists.values()].flatMap(source => poolsIn(source, findAbout)),
  };
}

function poolsIn(source: string, findAbout: FindAbout): HostFacts['pools'] {
  try {
    const list = parseNetwork(source);
    return seenPoolsOf(list, findAbout).map(pool => ({ network: list.name, ...pool }));
  } catch {
    return [];
  }
}

function rangesIn(source: string, findAbout: FindAbout): RangeUse[] {
  try {
    return rangeUsesOf(parseNetwork(source), findAbout);
  } catch {
    // The conflist is outdated: no number is better than a wrong one.
    return [];
  }
}
