// How are hardware addresses parsed and formatted?

/**
 * Parses a six-byte hardware address in colon, hyphen or dotted-quad notation.
 * @throws Error when the text is none of them
 */
export function parseMac(text: string): Uint8Array {
  const colons = /^[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}$/.test(text);
  const dots = /^[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){2}$/.test(text);
  if (!colons && !dots) {
    throw new Error(`Cannot read hardware address "${text}": expected six bytes such as "0a:58:0a:01:02:03"`);
  }
  const digits = text.replace(/[:.-]/g, '');
  return Uint8Array.from({ length: 6 }, (_, i) => Number.parseInt(digits.slice(i * 2, i * 2 + 2), 16));
}

/** Lower-case colon notation, as the kernel's tools print it. */
export function renderMac(bytes: Uint8Array): string {
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join(':');
}

/** True when the address can belong to one interface: neither multicast nor all zero. */
export function isUnicastMac(bytes: Uint8Array): boolean {
  return bytes.length === 6 && ((bytes[0] ?? 1) & 1) === 0 && bytes.some(byte => byte !== 0);
}
