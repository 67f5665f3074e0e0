// What happens to the containers of both twins?

/** One step; `who` is the container, the first unless given. */
export interface Step {
  readonly verb: 'ADD' | 'CHECK' | 'DEL' | 'GC' | 'STATUS' | 'damage' | 'remove namespace';
  readonly who?: 1 | 2;
  /** How a report calls it; the verb unless given. */
  readonly name?: string;
  /** For DEL: the runtime does not know the namespace any more. */
  readonly withoutNetns?: boolean;
}

/** A story that both twins play on a ground of their own. */
export interface Scene {
  readonly name: string;
  readonly steps: readonly Step[];
}

const [ADD, CHECK, DEL] = [{ verb: 'ADD' }, { verb: 'CHECK' }, { verb: 'DEL' }] as const;

/** From the usual to the awkward; each is played from the beginning. */
export const SCENES: readonly Scene[] = [
  { name: 'life', steps: [{ verb: 'STATUS' }, ADD, CHECK, DEL, { ...DEL, name: 'DEL again' }] },
  {
    name: 'two containers',
    steps: [
      ADD,
      { ...ADD, who: 2, name: 'ADD of a second' },
      { ...DEL, name: 'DEL of the first' },
      { ...CHECK, who: 2, name: 'CHECK of the second' },
      { ...DEL, who: 2, name: 'DEL of the second' },
    ],
  },
  { name: 'twice', steps: [ADD, { ...ADD, name: 'ADD again' }, { ...CHECK, name: 'CHECK after that' }, DEL] },
  {
    name: 'out of order',
    steps: [
      { ...DEL, name: 'DEL before ADD' },
      { ...CHECK, name: 'CHECK before ADD' },
      ADD,
      DEL,
      { ...CHECK, name: 'CHECK after DEL' },
    ],
  },
  { name: 'damaged', steps: [ADD, { verb: 'damage' }, { ...CHECK, name: 'CHECK of damage' }, DEL] },
  {
    name: 'namespace gone',
    steps: [ADD, { verb: 'remove namespace' }, { ...DEL, name: 'DEL without the namespace' }],
  },
  {
    name: 'namespace forgotten',
    steps: [ADD, { ...DEL, withoutNetns: true, name: 'DEL with an empty CNI_NETNS' }],
  },
  {
    name: 'garbage',
    steps: [
      ADD,
      { ...ADD, who: 2, name: 'ADD of a second' },
      { verb: 'GC' },
      { ...CHECK, name: 'CHECK after GC' },
      DEL,
    ],
  },
];
