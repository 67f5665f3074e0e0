// What of a text may a terminal see that somebody else has written?

/**
 * Control characters, as a plugin's message may hold them to move the cursor, and those that turn the direction of writing
 * around. Colours are ours: they change nothing that is read.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const UNSEEN = /(\u001b\[\d{1,3}m)|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** The text with such characters written out as JSON would (`\u001b`), so that JSON stays what it was. */
export function showable(text: string): string {
  return text.replace(UNSEEN, (char, colour?: string) => {
    return colour ?? `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}
