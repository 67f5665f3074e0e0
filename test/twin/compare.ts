// Where do two observations differ?

/** One place where they do; a side that lacks it has `undefined`. */
export interface Finding {
  readonly row: string;
  /** Step, side of the ground, kind, name, field: `ADD/host/link/br0/mtu`. */
  readonly path: string;
  readonly reference: unknown;
  readonly ours: unknown;
}

/** Walks two values in parallel; what only one side has is one finding, however much it holds. */
export function compare(row: string, reference: unknown, ours: unknown, path = ''): Finding[] {
  if (!isContainer(reference) || !isContainer(ours) || Array.isArray(reference) !== Array.isArray(ours)) {
    return Object.is(reference, ours) ? [] : [{ row, path, reference, ours }];
  }
  const names = [...new Set([...Object.keys(reference), ...Object.keys(ours)])];
  return names.flatMap(name =>
    compare(row, reference[name], ours[name], path === '' ? name : `${path}/${name}`),
  );
}

function isContainer(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
