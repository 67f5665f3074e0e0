// What did a container leave behind, and what does its network keep for all of its containers?
import { condense, diffStates } from './diff.ts';
import type { Snapshot } from './snapshot.ts';
import type { State, StateObject } from './state/object.ts';

/** The judgement on the differences between the state before ADD and after DEL. */
export interface Leftovers {
  /** A container's objects that should have been deleted, and the host's own that should not have. */
  readonly left: readonly string[];
  /** Objects of the network: a bridge, a table, a lock file. The next container uses them again. */
  readonly kept: readonly string[];
}

/** What distinguishes a container's objects from its network's. */
export interface Marks {
  /** Shapes of what a second container added to the existing network: every container gets such objects. */
  readonly shapes: ReadonlySet<string>;
  /** The container's id and namespace path: an object with one of them in its name belongs to the container. */
  readonly ids: readonly string[];
  /** The container's addresses, with the same meaning. */
  readonly addresses: readonly string[];
}

/** Judges what remains. Devices other than bridges always belong to a container. */
export function judge(before: Snapshot, after: Snapshot, marks: Marks): Leftovers {
  const host = diffStates(before.host, after.host);
  const files = diffStates(before.files, after.files);
  const inside = diffStates(before.container, after.container);
  const added = [...host.added, ...files.added].filter(isJudged);
  const left = added.filter(object => isContainers(object, marks));
  const damaged = host.changed.filter(({ object }) => isJudged(object)).map(({ words }) => words);
  return {
    left: [
      ...condense(left),
      ...condense(inside.added.filter(isJudged)).map(words => `${words} (container)`),
      ...condense(host.removed).map(words => `deleted: ${words}`),
      ...damaged,
    ],
    kept: [
      ...condense(added.filter(object => !left.includes(object))),
      ...host.changed.filter(({ object }) => !isJudged(object)).map(({ words }) => words),
    ],
  };
}

/** What a second container added and did not remove. */
export function judgeRound(before: Snapshot, after: Snapshot): string[] {
  return (['host', 'files'] as const).flatMap(place =>
    condense(diffStates(before[place], after[place]).added.filter(isJudged)),
  );
}

/** Shapes of the objects added between two snapshots. */
export function shapesAdded(before: Snapshot, after: Snapshot): Set<string> {
  const added = (from: State, to: State) => diffStates(from, to).added;
  const all = [...added(before.host, after.host), ...added(before.files, after.files)];
  return new Set(all.flatMap(({ shape }) => shape ?? []));
}

function isJudged({ shape }: StateObject): boolean {
  return shape !== undefined;
}

function isContainers({ shape = '', words, state }: StateObject, { shapes, ids, addresses }: Marks): boolean {
  if (shape.startsWith('device of kind ') || shapes.has(shape)) return true;
  const text = `${words}\n${Object.values(state ?? {}).join('\n')}`;
  return ids.some(id => text.includes(id)) || addresses.some(address => holdsAddress(text, address));
}

/** True when the text contains the address as a whole: 10.1.0.2 is not in 10.1.0.25. */
export function holdsAddress(text: string, address: string): boolean {
  return text.split(/[^\da-f.:]+/i).includes(address);
}
