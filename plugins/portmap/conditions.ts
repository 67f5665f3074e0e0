// How are the conditions of an attachment expressed in nf_tables?

import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { FAMILIES } from '../../src/net/ip.ts';
import type { Expression } from '../../src/netlink/nft/expr.ts';
import { canonicalMatch, MatchError, parseMatch } from '../../src/netlink/nft/match.ts';

/** The conditions as configured, in the syntax of the packet filter. */
export interface ConditionWords {
  readonly conditionsV4?: readonly string[] | undefined;
  readonly conditionsV6?: readonly string[] | undefined;
}

/** Conditions of one IP version in nf_tables. */
export interface Conditions {
  readonly family: 4 | 6;
  /** Short enough for names of sets; equal for equal conditions, whichever attachment has them. */
  readonly handle: string;
  /** Human-readable. */
  readonly text: string;
  /** Any of these has to match. */
  readonly alternatives: readonly Expression[][];
}

/** Hexadecimal digits of a handle. */
const HANDLE_DIGITS = 15;

/**
 * The configured conditions, parsed for nf_tables; empty if there are none.
 * @throws CniError 7 naming the part that is not understood
 */
export function parseConditions(conf: ConditionWords): Conditions[] {
  return FAMILIES.flatMap(family => {
    const words = wordsOf(conf, family);
    return words.length ? parse(family, words) : [];
  });
}

/** The handle that represents conditions in the kernel, for either packet filter. */
export function conditionHandle(family: 4 | 6, words: string): string {
  return new Bun.CryptoHasher('sha256').update(`${family} ${words}`).digest('hex').slice(0, HANDLE_DIGITS);
}

/** The words as configured; an empty first word means that there are no conditions. */
export function wordsOf({ conditionsV4, conditionsV6 }: ConditionWords, family: 4 | 6): readonly string[] {
  const words = (family === 4 ? conditionsV4 : conditionsV6) ?? [];
  return words[0] ? words : [];
}

function parse(family: 4 | 6, words: readonly string[]): Conditions {
  try {
    // The reference passes them to nft joined like this, so one array entry may hold several words.
    const text = canonicalMatch(words.join(' '));
    return {
      family,
      handle: conditionHandle(family, text),
      text,
      alternatives: parseMatch(family, text),
    };
  } catch (thrown) {
    if (!(thrown instanceof MatchError)) throw thrown;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "conditionsV${family}": ${JSON.stringify(words)}: ${thrown.problem}`,
      { details: 'use "backend": "iptables" for matches that nftables does not have' },
    );
  }
}
