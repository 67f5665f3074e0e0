// How is a match in nft syntax split into words?

/** Signs that are words of their own, longer ones first. */
const SIGNS = ['==', '!=', '<=', '>=', '<', '>', '{', '}', ',', '&', '!', '='];

/** A match that cannot be parsed; `problem` completes a sentence that names the match. */
export class MatchError extends Error {
  override readonly name = 'MatchError';
  readonly problem: string;

  constructor(text: string, problem: string) {
    super(`Cannot read match "${text}": ${problem}`);
    this.problem = problem;
  }
}

/**
 * Splits at blanks and at signs; quotes keep a name together and are dropped.
 * @throws MatchError for an unterminated quote
 */
export function splitWords(text: string): string[] {
  const words: string[] = [];
  for (let at = 0; at < text.length; ) {
    const rest = text.slice(at);
    const blank = /^\s+/.exec(rest)?.[0];
    const quoted = /^"([^"\p{Cc}]*)"/u.exec(rest);
    const sign = SIGNS.find(one => rest.startsWith(one));
    const word = /^[^\s"{},&<>=!]+/.exec(rest)?.[0];
    if (blank) at += blank.length;
    else if (quoted) {
      words.push(quoted[1] ?? '');
      at += quoted[0].length;
    } else if (sign) {
      words.push(sign);
      at += sign.length;
    } else if (word) {
      words.push(word);
      at += word.length;
    } else throw new MatchError(text, 'a quote has no end');
  }
  return words;
}
