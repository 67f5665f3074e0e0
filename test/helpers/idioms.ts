// Which idioms made our texts hard to read, and what is written instead?

/** An idiom, and its replacement. */
interface Idiom {
  readonly pattern: RegExp;
  readonly instead: string;
}

const NAME_IT = 'name who or what: "no process", "the caller", "another runtime"';

/** Each was removed from the whole tree. A pattern stands in word boundaries and ignores case. */
export const IDIOMS: readonly Idiom[] = (
  [
    ['(?<!["\'`])nobody|nobody(?!["\'`])', NAME_IT],
    ['somebody', NAME_IT],
    ['anybody', NAME_IT],
    ['everybody', NAME_IT],
    ['whoever|whosoever', NAME_IT],
    ['he|him|his|himself|she|her|hers', '"it", for a process'],
    ['any more', '"no longer", or "now"'],
    ['by itself|by themselves', '"on its own", "alone", "without …"'],
    ['in words', '"human-readable", "as text"'],
    ['meanwhile|in the meantime', '"while …", "during …", "since"'],
    ['anew', '"again"'],
    ['by now', '"already", "now"'],
    ['heed|heeds|heeded|heeding|heedless|heedlessly', '"honour", "ignore"'],
    ['put off|puts off|putting off', '"defer"'],
    ['take back|takes back|taken back|took back|taking back', '"undo", "roll back"'],
    ['led to|are led|is led', '"forwarded to", "caused"'],
    ['go away|goes away|went away|gone away', '"is deleted", "ends"'],
    ['all the same', '"anyway", "nevertheless"'],
    ['as ever', '"as before"'],
    ['whose it is', '"its owner"'],
    ['makes no sense|make no sense', '"is invalid"'],
    ['has the say', '"decides"'],
    ['its like|the like', '"similar …"'],
    ['hand on|hands on|handed on|handing on', '"pass on", "pass"'],
    ['lay the|lays the|lay executables', '"install"'],
    ['whence|thence|hence|hither|thither', '"from where", "therefore"'],
    ['unless told otherwise', '"unless …" and the option'],
    ['straggler|stragglers|strays', '"orphan process" (src/README.md has the glossary)'],
    ['leftover|leftovers|left over', '"garbage", or "leak" (src/README.md has the glossary)'],
    ['foretell|foretells|foretold', '"announce"'],
    ['clear the way|clears the way', '"settle"'],
    ['(?:plugins?|rules?|files?) of others', '"third-party plugin", "rules of other programs"'],
    ['in vain', '"without success"'],
  ] as const
).map(([words, instead]) => {
  // A line may be wrapped inside of an idiom.
  const wrapped = words.replaceAll(' ', '\\s+(?:(?:\\*|//)\\s+)?');
  return { pattern: new RegExp(`\\b(?:${wrapped})\\b`, 'gi'), instead };
});

/** An idiom at a line, from 1. */
export interface Found {
  readonly line: number;
  readonly idiom: string;
  readonly instead: string;
}

/** The idioms of a file: in comments and strings of source code, anywhere in other texts. */
export function findIdioms(file: string, text: string): Found[] {
  const prose = /\.(ts|mjs|proto)$/.test(file) ? proseOf(text) : withoutTitles(text);
  const found = IDIOMS.flatMap(({ pattern, instead }) =>
    Array.from(prose.matchAll(pattern), match => ({
      line: prose.slice(0, match.index).split('\n').length,
      idiom: match[0].replace(/\s+(?:(?:\*|\/\/)\s+)?/g, ' '),
      instead,
    })),
  );
  return found.sort((a, b) => a.line - b.line);
}

/** Blanks everything but comments and strings; paths of imports are no prose. */
function proseOf(text: string): string {
  const token =
    /(\/\*[\s\S]*?\*\/|\/\/.*|'(?!\.\.?\/)(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)|\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*(?=[\s).,;:\]])/g;
  let prose = '';
  let at = 0;
  for (const match of text.matchAll(token)) {
    prose += blank(text.slice(at, match.index)) + (match[1] ?? blank(match[0]));
    at = match.index + match[0].length;
  }
  return prose + blank(text.slice(at));
}

/** src/THREATS.md quotes titles of tests, which are checked where they stand. */
function withoutTitles(text: string): string {
  return text.replace(/^\* `test\/.*$/gm, blank);
}

function blank(text: string): string {
  return text.replace(/[^\n]/g, ' ');
}
