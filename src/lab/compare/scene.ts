// What happens to the containers of both twins, and what does a twin record of it?

/** One of the two compared sets of executables. */
export type Side = 'A' | 'B';

/** One step; `who` is the container, by default the first. */
export interface Step {
  readonly verb: 'ADD' | 'CHECK' | 'DEL' | 'GC' | 'STATUS' | 'hand over' | 'damage' | 'remove namespace';
  /** Whose executables run the step in both twins; by default each twin's own. */
  readonly by?: Side;
  readonly who?: 1 | 2;
  /** Name in reports; by default the command. */
  readonly name?: string;
  /** For DEL: the runtime no longer knows the namespace. */
  readonly withoutNetns?: boolean;
}

/** A sequence of steps that both twins play, each in a lab of its own. */
export interface Scene {
  readonly name: string;
  readonly steps: readonly Step[];
  /** For scenes in which one set finishes what the other began: who makes the attachment, and what the other does. */
  readonly crossing?: { readonly maker: Side; readonly verb: 'CHECK' | 'DEL' };
  /** Played only when requested by name. */
  readonly onDemand?: true;
}

const [ADD, CHECK, DEL] = [{ verb: 'ADD' }, { verb: 'CHECK' }, { verb: 'DEL' }] as const;

/** From the usual to the awkward; each starts from scratch. */
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
  ...(['A', 'B'] as const).flatMap(maker =>
    [DEL, CHECK].map(({ verb }) => ({
      name: `ADD by ${maker}, ${verb}`,
      steps: [{ ...ADD, by: maker }, { verb }],
      crossing: { maker, verb },
    })),
  ),
  {
    name: 'ADD by A, handed over, DEL',
    steps: [{ ...ADD, by: 'A' }, { verb: 'hand over', by: 'A' }, DEL],
    crossing: { maker: 'A', verb: 'DEL' },
    onDemand: true,
  },
];

/** The scene that shows whether B can delete what A made. */
export const DELETED_BY_B = 'ADD by A, DEL';
/** The scene that shows whether B can delete what A made and handed over. */
export const DELETED_AFTER_HANDOVER = 'ADD by A, handed over, DEL';

/** The complete state at one moment: namespaces by name, and files by path. */
export interface Sight {
  readonly places: Readonly<Record<string, Observation>>;
  readonly files: Readonly<Record<string, string>>;
}

/** The answer of a plugin or of a whole step. */
export interface StepReply {
  readonly failed: boolean;
  /** The result of a successful ADD. */
  readonly result?: unknown;
  readonly code?: number;
  readonly message?: string;
}

/** The state after a plugin has run, or after a step, which has no `index`. */
export interface Moment {
  readonly step: string;
  readonly verb: string;
  /** Index of the plugin in the conflist. */
  readonly index?: number;
  readonly answer: StepReply;
  readonly durationMs: number;
  readonly sight: Sight;
}

/** The record of a scene played by one twin. */
export interface SceneRecord {
  /** Inodes of the namespaces, by name: an inode in a file means the namespace. */
  readonly namespaces: Readonly<Record<string, string>>;
  /** Milliseconds since 1970. */
  readonly began: number;
  readonly ended: number;
  readonly before: Sight;
  readonly moments: readonly Moment[];
}

/** An object with its properties as text. */
export type Observed = Readonly<Record<string, string>>;

/** Objects by kind (`link`, `route`, …), then by name. */
export type Observation = Readonly<Record<string, Readonly<Record<string, Observed>>>>;

/** A value as text; equal values get equal texts. */
export function toText(value: unknown): string {
  if (typeof value === 'string') return value;
  return JSON.stringify(value, (_, member: unknown) => {
    if (typeof member === 'bigint') return member.toString();
    return member instanceof Uint8Array ? member.toHex() : member;
  });
}
