// What are the files called that an installation makes for itself, and what is a configuration called that wins?

/** Start of the names of files that are not finished; no runtime reads them, and the next installation removes them. */
export const UNFINISHED = '.catena-install-';

/** End of the name of a file that had to give way; no runtime reads it. */
export const REPLACED = '.before-catena';

/** What a configuration's name starts with, from usual to desperate. */
const PREFIXES = ['10-', '05-', '00-', '00-00-', '00-00-00-'] as const;

/**
 * A file name for a network that sorts before all others, by bytes as runtimes sort.
 * @param others names of the configurations that are there
 * @throws Error when another one cannot be outdone
 */
export function nameFirst(network: string, others: readonly string[]): string {
  const found = PREFIXES.map(prefix => `${prefix}${network}.conflist`).find(name =>
    others.every(other => Buffer.compare(Buffer.from(name), Buffer.from(other)) < 0),
  );
  if (found !== undefined) return found;
  const first = [...others].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))[0];
  throw new Error(`Cannot name a file that sorts before "${first}": choose one with --conf-name`);
}

/** The usual file name of a network. */
export function nameUsually(network: string): string {
  return `${PREFIXES[0]}${network}.conflist`;
}
