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
  const row = (key: string, what: string, code: number | undefined, call: Finish): WaterfallRow => {
    const { verb, network, startMs, durationMs, transactions = [] } = call;
    const name = `${verb === record.verb ? '' : `${verb} `}${what}${network === record.network ? '' : ` of ${network}`}`;
    return { key, name, startMs, durationMs, code, transactions };
  };
  return [
    ...record.plugins.map((plugin, at) => row(`plugin ${at}`, plugin.type, plugin.code, plugin)),
    ...(record.finishes ?? []).map((finish, at) => row(`removals ${at}`, 'removals', undefined, finish)),
  ].toSorted((a, b) => a.startMs - b.startMs);
}

type Finish = NonNullable<ShownRequest['finishes']>[number];

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
