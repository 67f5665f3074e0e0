// What is one thing that exists in a namespace or among the lab's files, told in a few words?

/** Something that a link may make, change or leave behind. */
export interface StateObject {
  /** Unique within its place: `link cni0`. */
  readonly key: string;
  /** For people: `bridge cni0`. */
  readonly words: string;
  /**
   * What it is, without names and numbers: equal for what each container gets. Absent for what is never judged as left
   * behind.
   */
  readonly shape?: string | undefined;
  /** Key of the object with which it goes: the link of an address, the table of a rule. */
  readonly parent?: string;
  /** Many of a kind are counted rather than listed: `['rule', 'rules']`. */
  readonly counted?: readonly [one: string, many: string];
  /** What may change while the object stays. */
  readonly state?: Readonly<Record<string, string>>;
}

/** Everything in one place at one time, by key. */
export type State = ReadonlyMap<string, StateObject>;

/** A state from its objects. */
export function stateOf(objects: readonly StateObject[]): State {
  return new Map(objects.map(object => [object.key, object]));
}
