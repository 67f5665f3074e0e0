// Which names may a network interface have, and how are hardware addresses parsed and formatted?

/** Maximum length of an interface name in bytes: IFNAMSIZ of linux/if.h without the terminating zero. */
export const IFNAME_MAX_BYTES = 15;

/** What is wrong with an interface name, or undefined when the kernel would accept it. */
export function findIfnameProblem(name: string): string | undefined {
  if (name === '') return 'interface name is empty';
  if (new TextEncoder().encode(name).length > IFNAME_MAX_BYTES) {
    return `interface name is longer than ${IFNAME_MAX_BYTES} bytes`;
  }
  if (name === '.' || name === '..') return 'interface name must not be "." or ".."';
  // U+0085 is white space to the reference implementations and to the kernel's isspace(), but not to \s.
  if (/[/:\s\u0085\0]/u.test(name)) return 'interface name must not contain "/", ":" or white space';
  // The kernel counts up in the place of "%d", and refuses every other "%".
  if (name.includes('%')) return 'interface name must not contain "%"';
  if (name === 'all' || name === 'default') {
    return `interface name "${name}" stands for the settings of several interfaces`;
  }
  return undefined;
}

/** A word as a shell reads it. Programs of a container name its interfaces, and who pastes a command that mends one must not run theirs. */
export function asWord(text: string): string {
  return /^[\w./:=,@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

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

/** A locally administered unicast address. */
export function randomMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return renderMac(bytes);
}

/**
 * The same, above those of nearly all other devices: a bridge without a hardware address of its own has the lowest of its ports', and so
 * would the host have another one for its neighbours with each container.
 */
export function randomHighMac(): string {
  return renderMac(crypto.getRandomValues(new Uint8Array(6)).with(0, 0xfe));
}

/** The kernel's address of loopback devices, and of a bridge that has lost its last port: it identifies nothing. */
export const NO_MAC = '00:00:00:00:00:00';

/** True when the address can belong to one interface: neither multicast nor all zero. */
export function isUnicastMac(bytes: Uint8Array): boolean {
  return bytes.length === 6 && ((bytes[0] ?? 1) & 1) === 0 && bytes.some(byte => byte !== 0);
}
