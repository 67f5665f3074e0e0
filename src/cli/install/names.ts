// How are an installation's own files named, and which name gives a configuration precedence?

/** Prefix of temporary files. No runtime reads them, and the next installation removes them. */
export const UNFINISHED = '.catena-install-';

/** The lock of an installation: every user can open the directory, and would hold its lock. */
export const TURN_NAME = '.catena-turn.lock';

/** Suffix of a file that was replaced; no runtime reads it. */
export const REPLACED = '.before-catena';

/** Prefixes of a configuration's name, from the usual one to the last resort. */
const PREFIXES = ['10-', '05-', '00-', '00-00-', '00-00-00-'] as const;

/**
 * A file name for a network that sorts before all others, bytewise as in runtimes.
 * @param others names of the existing configurations
 * @throws Error if no name sorts before all of them
 */
export function nameFirst(network: string, others: readonly string[]): string {
  const found = PREFIXES.map(prefix => `${prefix}${network}.conflist`).find(name =>
    others.every(other => Buffer.compare(Buffer.from(name), Buffer.from(other)) < 0),
  );
  if (found !== undefined) return found;
  const first = [...others].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))[0];
  throw new Error(`Cannot find a file name that sorts before "${first}": choose one with --conf-name`);
}

/** The usual file name of a network. */
export function nameUsually(network: string): string {
  return `${PREFIXES[0]}${network}.conflist`;
}
