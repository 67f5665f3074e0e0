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

function render(value: unknown): string {
  return value === undefined ? 'nothing' : JSON.stringify(value);
}
