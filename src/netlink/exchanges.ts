// How does a listener learn of every exchange with the kernel, and what it was about?
import { errnoName } from '../sys/errno.ts';
import { NetlinkError } from './errors.ts';

/** One request, transaction or dump, from sending it to the last answer. */
export interface Exchange {
  /** `rtnetlink` or `netfilter`; `iptables` for runs of its programs. */
  readonly family: string;
  /** The requested operation, human-readable. */
  readonly what: string;
  /** `performance.now()` of this process. */
  readonly startedAt: number;
  readonly endedAt: number;
  /** Why it was refused, for example `ENODEV`; the caller may have expected it. */
  readonly refusal?: string;
}

type Listener = (exchange: Exchange) => void;

/** Names of the protocols in use (linux/netlink.h). */
const FAMILIES: Readonly<Record<number, string>> = { 0: 'rtnetlink', 12: 'netfilter' };

/** Number of requests of one exchange that are named; the rest are only counted. */
const NAMED = 3;

let listener: Listener | undefined;

/** Reports every further exchange of this process to one listener; without a listener nothing is recorded. */
export function listenToExchanges(next: Listener | undefined): void {
  listener = next;
}

/**
 * Runs the work, which is one exchange with the kernel, and reports it.
 * @param family of the exchange, or the number of its protocol
 * @param asked the requested operations, human-readable
 * @param work may report a refusal that it does not throw, or the refusal's number
 */
export function exchange<T>(
  family: string | number,
  asked: readonly { readonly op: string }[],
  work: (refuse: (refusal: unknown) => void) => T,
): T {
  if (listener === undefined) return work(ignore);
  const startedAt = performance.now();
  let refusal: unknown;
  try {
    return work(thrown => {
      refusal ??= thrown;
    });
  } catch (thrown) {
    refusal = thrown;
    throw thrown;
  } finally {
    listener({
      family: typeof family === 'string' ? family : (FAMILIES[family] ?? `netlink ${family}`),
      what: describe(asked.map(({ op }) => op)),
      startedAt,
      endedAt: performance.now(),
      ...(refusal === undefined ? {} : { refusal: nameOf(refusal) }),
    });
  }
}

function ignore(): void {}

function describe(all: readonly string[]): string {
  const more = all.length - NAMED;
  return [...all.slice(0, NAMED), ...(more > 0 ? [`${more} more`] : [])].join('; ');
}

function nameOf(refusal: unknown): string {
  if (typeof refusal === 'number') return errnoName(refusal);
  if (refusal instanceof NetlinkError) return errnoName(refusal.errno);
  return refusal instanceof Error ? refusal.message : String(refusal);
}
