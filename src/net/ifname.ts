// Which names may a network interface have?

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
