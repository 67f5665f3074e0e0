// How is any value told in a line?

/** A value as text that says the same for the same value. */
export function toText(value: unknown): string {
  if (typeof value === 'string') return value;
  return JSON.stringify(value, (_, member: unknown) => {
    if (typeof member === 'bigint') return member.toString();
    return member instanceof Uint8Array ? member.toHex() : member;
  });
}
