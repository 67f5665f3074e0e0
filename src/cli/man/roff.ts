// How is text written so that man shows it unchanged?

/** Ordinary text: nothing in it is taken for a request or an escape. */
export function escapeText(text: string): string {
  const plain = text.replaceAll('\\', '\\e').replace(/[^\n\x20-\x7e]/gu, toUnicodeEscape);
  return plain.replace(/^(?=[.'])/gm, '\\&');
}

/** What a user types: a hyphen stays one, so that it can be copied. Quotes and accents would become typographic ones. */
export function escapeLiteral(text: string): string {
  return escapeText(text)
    .replaceAll('-', '\\-')
    .replaceAll('`', '\\(ga')
    .replaceAll("'", '\\(aq')
    .replaceAll('^', '\\(ha')
    .replaceAll('~', '\\(ti');
}

/** A macro's argument: it may have spaces. */
export function quoted(text: string): string {
  return `"${text.replaceAll('"', '\\(dq')}"`;
}

function toUnicodeEscape(character: string): string {
  const point = character.codePointAt(0) ?? 0;
  return `\\[u${point.toString(16).toUpperCase().padStart(4, '0')}]`;
}
