// How does an operator learn that clients ask this daemon and are declined?
import type { DeclineReason } from './protocol.ts';

/** The calls declined for one reason. */
export interface DeclinedCount {
  readonly count: number;
  /** Time of the last one. */
  readonly last: string;
}

/** What each reason means to a reader of the log. */
const MEANING: Readonly<Record<DeclineReason, string>> = {
  request: 'the request was not made by a client of this version',
  build: 'client and daemon are different executables: start the daemon of the installed build',
  namespace:
    'client and daemon are in different network or mount namespaces: start the daemon where the runtime runs',
  stale:
    'the client stopped waiting before the daemon handled the request: the daemon was stopped or overloaded',
  busy: 'too many requests of the network, or of all networks, wait for plugins or servers that do not answer',
  workers: 'no worker could take the call',
  ending: 'the daemon is shutting down',
};

/** Minimum interval between two log lines about the same reason. */
const QUIET_MS = 60_000;

/** Counts declined calls. The first one of a reason is logged at once; after that, one line a minute gives the number. */
export class DeclinedCalls {
  readonly #log: (message: string, fields: Record<string, string | number>) => void;
  readonly #counts = new Map<DeclineReason, { count: number; last: string; told: number; toldAt: number }>();

  constructor(log: (message: string, fields: Record<string, string | number>) => void) {
    this.#log = log;
  }

  /** Counts one call. @param detail more about it, human-readable */
  add(reason: DeclineReason, detail = ''): void {
    const now = performance.now();
    const known = this.#counts.get(reason) ?? { count: 0, last: '', told: 0, toldAt: -QUIET_MS };
    const counted = { ...known, count: known.count + 1, last: new Date().toISOString() };
    this.#counts.set(reason, counted);
    if (now - known.toldAt < QUIET_MS) return;
    this.#counts.set(reason, { ...counted, told: counted.count, toldAt: now });
    const why = detail === '' ? MEANING[reason] : `${MEANING[reason]} (${detail})`;
    this.#log(`declined calls, which the clients run themselves: ${why}`, {
      reason,
      calls: counted.count - known.told,
    });
  }

  get counts(): Readonly<Partial<Record<DeclineReason, DeclinedCount>>> {
    return Object.fromEntries(
      [...this.#counts].map(([reason, { count, last }]) => [reason, { count, last }]),
    );
  }
}
