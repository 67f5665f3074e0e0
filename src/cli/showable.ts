// Which parts of a third-party text may be shown on a terminal?
import { COLOUR } from '../lab/words.ts';

/**
 * Control characters, with which the message of a plugin or an annotation could move the cursor or conceal what follows, and
 * characters that change the direction of writing.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** The text with such characters escaped as in JSON (`\u001b`), so that JSON keeps its meaning, and with our own colours. */
export function showable(text: string): string {
  return text
    .replace(UNSEEN, char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .replaceAll(COLOUR, '\u001b[');
}
