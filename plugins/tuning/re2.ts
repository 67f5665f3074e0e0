// What does an expression in RE2 syntax, which the reference uses, mean in JavaScript?

/** POSIX classes, as they appear within brackets. */
const CLASSES: Readonly<Record<string, string>> = {
  alnum: '0-9A-Za-z',
  alpha: 'A-Za-z',
  ascii: '\\x00-\\x7F',
  blank: '\\t ',
  cntrl: '\\x00-\\x1F\\x7F',
  digit: '0-9',
  graph: '!-~',
  lower: 'a-z',
  print: ' -~',
  punct: '!-\\/:-@[-`{-~',
  space: '\\t\\n\\v\\f\\r ',
  upper: 'A-Z',
  word: '0-9A-Za-z_',
  xdigit: '0-9A-Fa-f',
};

/** Constructs that the two syntaxes write differently, outside of brackets and within; everything else is the same. */
const OUTSIDE = /\\Q(.*?)(?:\\E|$)|\\x\{[0-9A-Fa-f]+\}|\\(.)|\(\?P<|\[\^?\]?/gsy;
const WITHIN = /\[:(\^?)(\w+):\]|\\x\{[0-9A-Fa-f]+\}|\\(.)|\]|\[/gsy;

/**
 * The expression, unanchored as in RE2.
 * @throws Error for invalid expressions, and for those that JavaScript cannot express
 */
export function parseRe2(text: string): RegExp {
  // Flags at the start are the only ones that both support.
  const [, flags = '', source = text] = /^\(\?([ims]+)\)(.*)$/s.exec(text) ?? [];
  let translated = '';
  let within = false;
  for (let at = 0; at < source.length; ) {
    const pieces = within ? WITHIN : OUTSIDE;
    pieces.lastIndex = at;
    const match = pieces.exec(source);
    if (match === null) {
      translated += source[at++];
      continue;
    }
    translated += within ? translateWithin(match) : translateOutside(match);
    if (within ? match[0] === ']' : match[0].startsWith('[')) within = !within;
    at = pieces.lastIndex;
  }
  return new RegExp(translated, flags);
}

function translateOutside([piece, quoted, escaped]: RegExpExecArray): string {
  if (quoted !== undefined) return quoted.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
  if (piece === '(?P<') return '(?<';
  // A bracket directly after the opening one is a member; in JavaScript it would end an empty class.
  if (piece.startsWith('[')) return piece.endsWith(']') ? `${piece.slice(0, -1)}\\]` : piece;
  if (escaped === 'A') return '(?<![^])';
  if (escaped === 'z') return '(?![^])';
  return translateEscape(piece, escaped);
}

function translateWithin([piece, negated, name, escaped]: RegExpExecArray): string {
  if (name !== undefined) {
    const members = negated ? undefined : CLASSES[name];
    if (members === undefined) throw new SyntaxError(`${piece} is not supported`);
    return members;
  }
  if (piece === '[') return '\\[';
  return piece === ']' ? piece : translateEscape(piece, escaped);
}

function translateEscape(piece: string, escaped: string | undefined): string {
  if (escaped === undefined) {
    const code = Number.parseInt(piece.slice(3, -1), 16);
    if (code > 0xffff) throw new SyntaxError(`${piece} is not supported`);
    return `\\u${code.toString(16).padStart(4, '0')}`;
  }
  if (['p', 'P', 'C'].includes(escaped)) throw new SyntaxError(`${piece} is not supported`);
  return piece;
}
