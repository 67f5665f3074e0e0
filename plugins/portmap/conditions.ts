// What do the conditions of an attachment come to in nf_tables?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Expression } from '../../src/netlink/nft/expr.ts';
import { canonicalMatch, parseMatch } from '../../src/netlink/nft/match/parse.ts';
import { MatchError } from '../../src/netlink/nft/match/words.ts';

/** What the configuration says of them: words as the packet filter has them. */
export interface ConditionWords {
  readonly conditionsV4?: readonly string[] | undefined;
  readonly conditionsV6?: readonly string[] | undefined;
}

/** Conditions of one IP version in nf_tables. */
export interface Conditions {
  readonly family: 4 | 6;
  /** Short enough for names of sets; the same for the same conditions, whoever has them. */
  readonly handle: string;
  /** For people. */
  readonly text: string;
  /** Any of these has to match. */
  readonly alternatives: readonly Expression[][];
}

/** Hexadecimal digits of a handle. */
const HANDLE_DIGITS = 15;

/**
 * The conditions of the configuration, as far as there are any, for nf_tables.
 * @throws CniError 7 saying what is not understood
 */
export function parseConditions(conf: ConditionWords): Conditions[] {
  return ([4, 6] as const).flatMap(family => {
    const words = wordsOf(conf, family);
    return words.length ? parse(family, words) : [];
  });
}

/** What stands for words of conditions in the kernel, in the language of whichever packet filter. */
export function conditionHandle(family: 4 | 6, words: string): string {
  return new Bun.CryptoHasher('sha256').update(`${family} ${words}`).digest('hex').slice(0, HANDLE_DIGITS);
}

/** The words as configured; an empty first one means that there are none. */
export function wordsOf({ conditionsV4, conditionsV6 }: ConditionWords, family: 4 | 6): readonly string[] {
  const words = (family === 4 ? conditionsV4 : conditionsV6) ?? [];
  return words[0] ? words : [];
}

function parse(family: 4 | 6, words: readonly string[]): Conditions {
  try {
    // The reference hands them to nft like this: a word may as well be several.
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
      { details: 'write it for "backend": "iptables" where nftables has no way to say it' },
    );
  }
}
