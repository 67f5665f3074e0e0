// How does an object leave out a member that has no value?

/**
 * The members that are not undefined, in their order: `{ name, ...defined({ mtu, mac }) }`. So an optional member is absent, as in
 * JSON, and does not replace one of the same name when it is spread over another object.
 */
export function defined<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const kept: Partial<T> = {};
  for (const key of Object.keys(members) as (keyof T)[]) {
    if (members[key] !== undefined) kept[key] = members[key];
  }
  return kept as { [K in keyof T]?: Exclude<T[K], undefined> };
}
