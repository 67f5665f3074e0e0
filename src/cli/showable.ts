// Which parts of a third-party text may be shown on a terminal?

/**
 * Control characters, which a plugin's message may contain to move the cursor, and characters that change the direction of
 * writing. Colours are allowed: they come from us and do not change the text.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const UNSEEN = /(\u001b\[\d{1,3}m)|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** The text with such characters escaped as in JSON (`\u001b`), so that JSON keeps its meaning. */
export function showable(text: string): string {
  return text.replace(UNSEEN, (char, colour?: string) => {
    return colour ?? `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}
