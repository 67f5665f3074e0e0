// How does CHECK report that something is not as ADD left it?

/**
 * Compares one thing that ADD made with its current state.
 * @param what names it for an operator: `MTU of "eth0"`
 * @throws Error naming the expected and the found value; undefined is shown as nothing
 */
export function confirm(what: string, expected: unknown, found: unknown): void {
  const [wanted, actual] = [render(expected), render(found)];
  if (wanted !== actual) throw new Error(`Cannot confirm ${what}: expected ${wanted}, found ${actual}`);
}

/** Differences that one message lists; one missing object often means that all are missing. */
const MOST_LISTED = 5;

/**
 * Reports differences that were found elsewhere.
 * @param what names all of them for an operator: `port mappings`
 * @throws Error with the first few of them, if there are any
 */
export function confirmAll(what: string, problems: readonly string[]): void {
  if (problems.length === 0) return;
  const more = problems.length > MOST_LISTED ? ` and ${problems.length - MOST_LISTED} more` : '';
  throw new Error(`Cannot confirm ${what}: ${problems.slice(0, MOST_LISTED).join(', ')}${more}`);
}

function render(value: unknown): string {
  return value === undefined ? 'nothing' : JSON.stringify(value);
}
