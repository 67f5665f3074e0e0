// How is one object in a namespace or among the lab's files described?

/** Something that a plugin may create, change or leave behind. */
export interface StateObject {
  /** Unique within its place: `link cni0`. */
  readonly key: string;
  /** Human-readable: `bridge cni0`. */
  readonly words: string;
  /**
   * Its description without names and numbers, equal for the corresponding objects of all containers. Absent for objects that
   * are never judged as left behind.
   */
  readonly shape?: string | undefined;
  /** Key of the object that it is deleted with: the link of an address, the table of a rule. */
  readonly parent?: string;
  /** For kinds that are counted rather than listed when there are many: `['rule', 'rules']`. */
  readonly counted?: readonly [one: string, many: string];
  /** Values that may change during the object's life. */
  readonly state?: Readonly<Record<string, string>>;
}

/** All objects in one place at one time, by key. */
export type State = ReadonlyMap<string, StateObject>;

/** Builds a state from its objects. */
export function stateOf(objects: readonly StateObject[]): State {
  return new Map(objects.map(object => [object.key, object]));
}
