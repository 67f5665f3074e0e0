// Which bars does the waterfall of a request have?
import type { ShownCall, ShownRequest } from '../shown.ts';

/** One bar, in the order of time. */
export interface WaterfallRow {
  readonly key: string;
  readonly name: string;
  readonly startMs: number;
  readonly durationMs: number;
  /** 0 for success, else an error code of the protocol; removals have none. */
  readonly code: number | undefined;
  readonly transactions: NonNullable<ShownCall['transactions']>;
}

/** Plugins, and the deferred removals that followed them. */
export function rowsOf(record: ShownRequest): WaterfallRow[] {
  const name = (what: string, { verb, network }: { readonly verb: string; readonly network: string }) =>
    `${verb === record.verb ? '' : `${verb} `}${what}${network === record.network ? '' : ` of ${network}`}`;
  const plugins = record.links.map((plugin, at) => ({
    key: `plugin ${at}`,
    name: name(plugin.link, plugin),
    startMs: plugin.startMs,
    durationMs: plugin.durationMs,
    code: plugin.code,
    transactions: plugin.transactions ?? [],
  }));
  const removals = (record.finishes ?? []).map((finish, at) => ({
    key: `removals ${at}`,
    name: name('removals', finish),
    startMs: finish.startMs,
    durationMs: finish.durationMs,
    code: undefined,
    transactions: finish.transactions ?? [],
  }));
  return [...plugins, ...removals].toSorted((a, b) => a.startMs - b.startMs);
}

/** Narrower bars could not be seen. */
const LEAST_PERCENT = 0.8;

/** Place and width of a bar, in percent of the request's duration. */
export function barOf(
  { startMs, durationMs }: Pick<WaterfallRow, 'startMs' | 'durationMs'>,
  totalMs: number,
): { readonly x: number; readonly width: number } {
  const percent = (ms: number) => (100 * ms) / Math.max(totalMs, 0.001);
  const x = Math.min(Math.max(percent(startMs), 0), 100 - LEAST_PERCENT);
  return { x, width: Math.min(Math.max(percent(durationMs), LEAST_PERCENT), 100 - x) };
}
