// What do histograms say that kubelet and Catena's daemon have counted, of what happened between two readings?

/** Counts by the upper bounds of their buckets, each with what is below. */
export type Histogram = ReadonlyMap<number, number>;

/**
 * The buckets of a histogram in Prometheus' text, summed over all series that have the labels.
 * @param labels such as `{ verb: 'ADD' }`
 */
export function histogramIn(text: string, name: string, labels: Readonly<Record<string, string>>): Histogram {
  const buckets = new Map<number, number>();
  for (const line of text.split('\n')) {
    const [, series = '', value = ''] = /^(\S*\{.*\}) (\S+)$/.exec(line) ?? [];
    if (!series.startsWith(`${name}_bucket{`)) continue;
    if (!Object.entries(labels).every(([key, wanted]) => labelOf(series, key) === wanted)) continue;
    const bound = labelOf(series, 'le') ?? '';
    const upTo = bound === '+Inf' ? Number.POSITIVE_INFINITY : Number(bound);
    buckets.set(upTo, (buckets.get(upTo) ?? 0) + Number(value));
  }
  return buckets;
}

/** The bound below which that share lies of what was counted between two readings; undefined if nothing was. */
export function quantileBetween(before: Histogram, after: Histogram, share: number): number | undefined {
  const counted = [...after].map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)] as const);
  counted.sort(([a], [b]) => a - b);
  const all = counted.at(-1)?.[1] ?? 0;
  return all === 0 ? undefined : counted.find(([, count]) => count >= all * share)?.[0];
}

function labelOf(series: string, key: string): string | undefined {
  return new RegExp(`[{,]${key}="([^"]*)"`).exec(series)?.[1];
}
