// Who wants to know of every exchange with the kernel, and what was it about?
import { errnoName } from '../sys/errno.ts';
import { NetlinkError } from './errors.ts';

/** One request or transaction, or one dump, from its sending to its last answer. */
export interface Exchange {
  /** `rtnetlink`, `netfilter`; `iptables` for its programs. */
  readonly family: string;
  /** What was asked, in words. */
  readonly what: string;
  /** `performance.now()` of this process. */
  readonly startedAt: number;
  readonly endedAt: number;
  /** Why it was refused, which the caller may well have counted on: `ENODEV`. */
  readonly refusal?: string;
}

type Listener = (exchange: Exchange) => void;

/** Names of the protocols that we speak (linux/netlink.h). */
const FAMILIES: Readonly<Record<number, string>> = { 0: 'rtnetlink', 12: 'netfilter' };

/** Requests of one exchange that are named; the others are counted. */
const NAMED = 3;

let listener: Listener | undefined;

/** Has every exchange of this process told to one listener from now on; without one, nothing is noted. */
export function listenToExchanges(next: Listener | undefined): void {
  listener = next;
}

/**
 * Does the work, which is one exchange with the kernel, and tells of it.
 * @param family of the exchange, or the number of its protocol
 * @param asked what is asked for, in words
 * @param work may report a refusal that it does not throw, or the number of it
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
