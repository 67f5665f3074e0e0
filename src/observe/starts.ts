// When did each plugin of a chain start, if its answer may have waited to be read?

/** When a plugin of a chain ran. */
interface Called {
  readonly network: string;
  readonly verb: string;
  /** Milliseconds since the request began. */
  readonly startMs: number;
  readonly durationMs: number;
}

/**
 * A start is the time at which an answer was read, less the plugin's own time, so an answer that waited makes its plugin appear later
 * than it was, even later than the next one. Plugins of a chain run one after the other: each must have ended when the next one
 * started.
 * @param plugins in the order of their answers
 */
export function settleStarts<T extends Called>(plugins: readonly T[]): T[] {
  const next = new Map<string, number>();
  return plugins
    .toReversed()
    .map(plugin => {
      const chain = `${plugin.verb} ${plugin.network}`;
      const latest = (next.get(chain) ?? Infinity) - plugin.durationMs;
      const startMs = Math.max(0, Math.min(plugin.startMs, latest));
      next.set(chain, startMs);
      return { ...plugin, startMs: Math.round(startMs * 1000) / 1000 };
    })
    .toReversed();
}
