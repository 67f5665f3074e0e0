// A model of one attachment and of all who work on it, small enough to try every order of their steps.
//
// The chain has two plugins. Our runner adds, deletes, recovers and repairs it, and may die at any step; another runtime adds and deletes
// it and knows no locks. Facts are named as in src/attachments/README.md. A rule that is left out shows what it is for.

/** What is on the node: which ADD (`o1` by our runner, `f1`, `f2` by the other) each thing is of. */
export interface World {
  /** What the plugins made. */
  readonly parts: readonly [Life, Life];
  /** libcni's cached result, and a stamp that no other file ever had; `torn` while it is being written. */
  readonly entry: { readonly life: Life; readonly stamp: number; readonly torn?: true } | undefined;
  /** The generation: which ADD has begun. */
  readonly generation: Life;
  /** Our note of unfinished work. */
  readonly note: Note | undefined;
  readonly lock: { readonly by: number; readonly purpose: Purpose } | undefined;
  readonly stamps: number;
  readonly deaths: number;
  readonly actors: readonly Actor[];
}

type Life = string | undefined;
type Purpose = 'add' | 'del' | 'remove' | 'repair';
type Note =
  | { readonly stage: 'adding'; readonly life: Life }
  | { readonly stage: 'deleting'; readonly stamp: number | undefined; readonly generation: Life };

export interface Actor {
  readonly name: string;
  readonly program: Program;
  readonly at: number;
  readonly is: 'working' | 'done' | 'dead';
  readonly isMortal: boolean;
  /** Begins once that actor has ended. */
  readonly after?: number;
  /** What it has read and remembers. */
  readonly mind: Readonly<Record<string, unknown>>;
}

/** The rules of the design; each can be left out. */
export interface Rules {
  /** A later generation ends an unfinished operation. */
  readonly generations: boolean;
  /** Another entry ends it. */
  readonly stamps: boolean;
  /** An ADD that has left its generation waits while a removal is marked. */
  readonly waits: boolean;
  /** After a repair, whether a DEL has begun is asked once more. */
  readonly asksAfter: boolean;
  /** A change takes the entry aside instead of renaming over it. */
  readonly takesAside: boolean;
  /** A DEL removes the generation before it deletes anything. */
  readonly generationFirst: boolean;
  /** Without a generation, a repair waits as long as a DEL may take before it begins. */
  readonly waitsBefore: boolean;
  /** Without a generation, the node is asked whether the interface is there. */
  readonly asksNode: boolean;
  /** What was put back is undone only if no later ADD is there. */
  readonly looksBeforeUndo: boolean;
}

/** One step of an actor: the world after it; `wait`, `end`, or the number of the step to go on with and the world. */
type Outcome = World | 'wait' | 'end' | { readonly to: number; readonly world: World };
type Step = (world: World, self: number, rules: Rules) => Outcome;
export type Program = readonly Step[];

/** Every world in which no actor can go on, reached from this one by any order of steps and up to two deaths. */
export function* endings(first: World, rules: Rules): Generator<World> {
  const seen = new Set<string>();
  const open = [first];
  for (let world = open.pop(); world; world = open.pop()) {
    const key = JSON.stringify({ ...world, actors: world.actors.map(({ program: _, ...one }) => one) });
    if (seen.has(key)) continue;
    seen.add(key);
    const next = world.actors.flatMap((_, index) => stepsOf(world as World, index, rules));
    if (next.length === 0) yield world;
    open.push(...next);
  }
}

const MAX_DEATHS = 2;

function stepsOf(world: World, index: number, rules: Rules): World[] {
  const actor = world.actors[index] as Actor;
  if (actor.is !== 'working') return [];
  if (actor.after !== undefined && world.actors[actor.after]?.is === 'working') return [];
  const next: World[] = [];
  const outcome = actor.program[actor.at]?.(world, index, rules) ?? 'end';
  if (outcome === 'end') next.push(unlock(withActor(world, index, { is: 'done' }), index));
  else if (outcome !== 'wait') {
    const { to, world: after } = 'to' in outcome ? outcome : { to: actor.at + 1, world: outcome };
    next.push(withActor(after, index, { at: to }));
  }
  if (actor.isMortal && actor.at > 0 && world.deaths < MAX_DEATHS)
    next.push({ ...withActor(world, index, { is: 'dead' }), deaths: world.deaths + 1 });
  return next;
}

function withActor(world: World, index: number, more: Partial<Actor>): World {
  return { ...world, actors: world.actors.map((one, at) => (at === index ? { ...one, ...more } : one)) };
}

const unlock = (world: World, index: number): World =>
  world.lock?.by === index ? { ...world, lock: undefined } : world;

const mindOf = (world: World, self: number) => (world.actors[self] as Actor).mind as Record<string, never>;
const remember = (world: World, self: number, more: object): World =>
  withActor(world, self, { mind: { ...mindOf(world, self), ...more } });
const isHeld = ({ lock, actors }: World) => lock !== undefined && actors[lock.by]?.is === 'working';
const make =
  (part: 0 | 1, life: (world: World, self: number) => Life): Step =>
  (world, self) => ({
    ...world,
    parts: part === 0 ? [life(world, self), world.parts[1]] : [world.parts[0], life(world, self)],
  });
const writeEntry = (world: World, life: Life, torn?: true): World => ({
  ...world,
  stamps: world.stamps + 1,
  entry: { life, stamp: world.stamps + 1, ...(torn ? { torn } : {}) },
});
const take =
  (purpose: Purpose): Step =>
  (world, self) =>
    isHeld(world) ? 'wait' : { ...world, lock: { by: self, purpose } };
const dropNote: Step = world => ({ ...world, note: undefined });
const nothing = () => undefined;

/** Removes the generation and the entry that the actor has read, and no others. */
const dropGeneration: Step = (world, self) =>
  world.generation === mindOf(world, self).generation ? { ...world, generation: undefined } : world;
const dropEntry: Step = (world, self) =>
  world.entry?.stamp === mindOf(world, self).stamp ? { ...world, entry: undefined } : world;
const take2 = (world: World, self: number): World =>
  remember(world, self, { stamp: world.entry?.stamp, life: world.entry?.life, generation: world.generation });

/** Our ADD. */
export const ADD: Program = [
  take('add'),
  world => (world.note || world.entry ? 'end' : world),
  world => ({ ...world, note: { stage: 'adding', life: 'o1' } }),
  world => ({ ...world, generation: 'o1' }),
  make(0, () => 'o1'),
  make(1, () => 'o1'),
  world => writeEntry(world, 'o1'),
  dropNote,
];

const noteDeletion: Step = (world, self) => {
  const { stamp, generation } = mindOf(world, self);
  return { ...world, note: { stage: 'deleting', stamp, generation } };
};
const deletion = [noteDeletion, make(1, nothing), dropGeneration, make(0, nothing), dropEntry, dropNote];

/** Our DEL of what another runtime made, as an operator asks for it. */
export const DEL: Program = [
  take('del'),
  (world, self) => (!world.entry || world.entry.torn ? 'end' : take2(world, self)),
  ...deletion,
];

/** The same, asked for by no one who knows the attachment: GC deletes what it has seen to be garbage. */
export const REMOVE: Program = [
  (world, self) => (world.entry?.life === 'f1' && !world.entry.torn ? take2(world, self) : 'end'),
  take('remove'),
  ({ entry, generation, ...world }, self, rules) => {
    const seen = mindOf({ entry, generation, ...world }, self);
    if (!entry || entry.torn) return 'end';
    if (rules.stamps && entry.stamp !== seen.stamp) return 'end';
    if (rules.generations && generation && generation !== seen.generation) return 'end';
    return take2({ entry, generation, ...world }, self);
  },
  ...deletion,
];

/** Settles what a dead runner of ours has left. */
export const RECOVER: Program = [
  (world, self) => (isHeld(world) ? 'end' : { ...world, lock: { by: self, purpose: 'remove' } }),
  (world, self, rules) => {
    const { note, entry, generation } = world;
    if (!note) return 'end';
    const own = note.stage === 'adding' ? note.life : note.generation;
    const isOver =
      (note.stage === 'adding' && entry) ||
      (note.stage === 'deleting' && !entry) ||
      (note.stage === 'deleting' && rules.stamps && entry?.stamp !== note.stamp) ||
      (rules.generations && generation && generation !== own);
    return isOver ? { to: 6, world } : take2(world, self);
  },
  make(1, nothing),
  dropGeneration,
  make(0, nothing),
  dropEntry,
  dropNote,
];

const isAsRead = (world: World, self: number): boolean => {
  const { stamp, generation } = mindOf(world, self);
  return world.entry?.stamp === stamp && world.generation === generation;
};
const foreign = ({ actors }: World) => actors.find(({ name }) => name === 'runtime') as Actor;
const isDeleting = (world: World) => {
  const { is, mind } = foreign(world);
  return is === 'working' && mind.verb === 'DEL';
};

/** Repair of the second plugin's part of what another runtime made; a change also writes the entry again. */
const repairing = (changes: boolean): Program => [
  take('repair'),
  (world, self, rules) => {
    if (rules.waitsBefore && !world.generation && foreign(world).is === 'working' && foreign(world).at > 0)
      return 'wait';
    return !world.entry || world.entry.torn ? 'end' : take2(world, self);
  },
  (world, self, rules) =>
    world.parts[1] === undefined ? make(1, () => mindOf(world, self).life)(world, self, rules) : world,
  (world, self, rules) => {
    // Whether a DEL has begun is asked afterwards: what it finds then has the new settings.
    if (!changes || world.entry?.stamp !== mindOf(world, self).stamp) return { to: 8, world };
    return { to: rules.takesAside ? 5 : 4, world };
  },
  // Renames over whatever is there.
  (world, self) => {
    const written = writeEntry(world, mindOf(world, self).life);
    return { to: 8, world: remember(written, self, { stamp: written.stamps }) };
  },
  (world, self) => ({ ...remember(world, self, { aside: world.entry }), entry: undefined }),
  (world, self) => {
    const { aside, stamp } = mindOf(world, self) as { aside?: NonNullable<World['entry']>; stamp?: number };
    return { to: aside?.stamp === stamp ? 7 : 12, world };
  },
  (world, self) => {
    if (world.entry) return world;
    const written = writeEntry(world, mindOf(world, self).life);
    return remember(written, self, { stamp: written.stamps });
  },
  // 8: has its runtime deleted it since?
  (world, self, rules) => {
    if (!rules.asksAfter) return 'end';
    const { generation, life } = mindOf(world, self);
    if (isAsRead(world, self) && generation) return 'end';
    if (isDeleting(world)) return 'wait';
    return isAsRead(world, self) && (!rules.asksNode || world.parts[0] === life) ? 'end' : world;
  },
  (world, self) => ({ ...world, lock: { by: self, purpose: 'remove' } }),
  (world, self, rules) => {
    const isOwn = world.entry?.stamp === mindOf(world, self).stamp;
    if (!rules.looksBeforeUndo || (!world.generation && (!world.entry || isOwn))) return { to: 11, world };
    return { to: 13, world: changes && isOwn ? { ...world, entry: undefined } : world };
  },
  (world, self) => ({
    to: 13,
    world: dropEntry({ ...world, parts: [undefined, undefined] }, self, RULES) as World,
  }),
  // 12: puts the other entry back.
  (world, self) => {
    const { aside } = mindOf(world, self) as { aside?: NonNullable<World['entry']> };
    return { to: 8, world: world.entry || !aside ? world : { ...world, entry: aside } };
  },
];
export const REPAIR = repairing(false);
export const CHANGE = repairing(true);

/** Calls of another runtime, one after the other. */
export function runtime(calls: readonly (readonly ['ADD' | 'DEL', string])[]): Program {
  const during = (verb: string, steps: Program): Program => [
    (world, self, rules) => {
      const first = steps[0]?.(remember(world, self, { verb }), self, rules);
      return first ?? 'end';
    },
    ...steps.slice(1, -1),
    (world, self, rules) => {
      const last = steps.at(-1)?.(world, self, rules) as World;
      return remember(last, self, { verb: undefined });
    },
  ];
  return calls.flatMap(([verb, life]) => {
    if (verb === 'ADD') {
      return during(verb, [
        world => ({ ...world, generation: life }),
        (world, _, rules) =>
          rules.waits && isHeld(world) && world.lock?.purpose === 'remove' ? 'wait' : world,
        make(0, () => life),
        make(1, () => life),
        world => writeEntry(world, undefined, true),
        world => writeEntry(world, life),
      ]);
    }
    const forget: Step = world => ({ ...world, generation: undefined });
    return [
      (world: World, self: number, rules: Rules) =>
        rules.generationFirst
          ? { ...remember(world, self, { verb }), generation: undefined }
          : (make(1, nothing)(
              remember(world, self, { verb, token: world.generation }),
              self,
              rules,
            ) as World),
      (world: World, self: number, rules: Rules) => {
        if (rules.generationFirst) return make(1, nothing)(world, self, rules);
        const { token } = mindOf(world, self);
        return token && world.generation === token ? forget(world, self, rules) : world;
      },
      make(0, nothing),
      (world: World, self: number) => ({ ...remember(world, self, { verb: undefined }), entry: undefined }),
    ] satisfies Program;
  });
}

export const RULES: Rules = {
  generations: true,
  stamps: true,
  waits: true,
  asksAfter: true,
  takesAside: true,
  generationFirst: true,
  waitsBefore: true,
  asksNode: true,
  looksBeforeUndo: true,
};

const NOTHING = { parts: [undefined, undefined], note: undefined, lock: undefined, deaths: 0 } as const;

/** A world without the attachment, and one in which another runtime has made it. */
export const EMPTY = { ...NOTHING, entry: undefined, generation: undefined, stamps: 0 } as const;
export const MADE = {
  ...NOTHING,
  parts: ['f1', 'f1'],
  entry: { life: 'f1', stamp: 1 },
  generation: 'f1',
  stamps: 1,
} as const;

/** An actor before its first step. */
export function actor(name: string, program: Program, more: Partial<Actor> = {}): Actor {
  return { name, program, at: 0, is: 'working', isMortal: name !== 'runtime', mind: {}, ...more };
}
