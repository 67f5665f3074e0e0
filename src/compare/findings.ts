// Where do two observations differ?

/** One difference; a side without the value has `undefined`. */
export interface Finding {
  /** Path to the value: `['host', 'link', 'br0', 'mtu']`. */
  readonly names: readonly string[];
  readonly first: unknown;
  readonly second: unknown;
}

/** Compares two values recursively; a value that only one side has is one finding, whatever its size. */
export function findDifferences(first: unknown, second: unknown, names: readonly string[] = []): Finding[] {
  if (!isContainer(first) || !isContainer(second) || Array.isArray(first) !== Array.isArray(second)) {
    return Object.is(first, second) ? [] : [{ names, first, second }];
  }
  const keys = [...new Set([...Object.keys(first), ...Object.keys(second)])];
  return keys.flatMap(key => findDifferences(first[key], second[key], [...names, key]));
}

function isContainer(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
