// How is any value rendered on one line?

/** A value as text; equal values get equal texts. */
export function toText(value: unknown): string {
  if (typeof value === 'string') return value;
  return JSON.stringify(value, (_, member: unknown) => {
    if (typeof member === 'bigint') return member.toString();
    return member instanceof Uint8Array ? member.toHex() : member;
  });
}
