// How is the change between two states described concisely?
import type { State, StateObject } from './state/object.ts';
import { count } from './words.ts';

/** The difference between two states of one place. */
export interface Difference {
  readonly added: readonly StateObject[];
  readonly removed: readonly StateObject[];
  /** Objects that still exist, with a description of their changed values. */
  readonly changed: readonly { readonly object: StateObject; readonly words: string }[];
}

/** More objects of a kind than this are counted instead of listed. */
const LISTED = 2;

/** Compares two states by key. */
export function diffStates(before: State, after: State): Difference {
  return {
    added: [...after.values()].filter(({ key }) => !before.has(key)),
    removed: [...before.values()].filter(({ key }) => !after.has(key)),
    changed: [...after.values()].flatMap(object => {
      const words = changeOf(before.get(object.key), object);
      return words === undefined ? [] : [{ object, words }];
    }),
  };
}

/** A difference as short lines: `+ bridge cni0`, `- veth veth1 in cni0`, `eth0: mtu 1500 → 1400`. */
export function renderDifference({ added, removed, changed }: Difference): string[] {
  return [
    ...condense(added).map(words => `+ ${words}`),
    ...condense(withoutParts(removed)).map(words => `- ${words}`),
    ...changed.map(({ words }) => words),
  ];
}

/** Describes objects, with a listed table's contents as part of its line and many objects of a kind counted. */
export function condense(objects: readonly StateObject[]): string[] {
  const keys = new Set(objects.map(({ key }) => key));
  const lines: string[] = [];
  const counted = new Map<string, StateObject[]>();
  for (const object of objects) {
    const { parent, counted: names } = object;
    if (names === undefined) lines.push(`${object.words}${contentsOf(object, objects)}`);
    else if (parent === undefined || !keys.has(parent)) {
      const group = `${names[1]} ${parent ?? ''}`;
      counted.set(group, [...(counted.get(group) ?? []), object]);
    }
  }
  for (const group of counted.values()) lines.push(...countGroup(group));
  return lines;
}

function countGroup(group: readonly StateObject[]): string[] {
  const [first] = group;
  if (first?.counted === undefined || group.length <= LISTED) return group.map(({ words }) => words);
  const where = first.parent === undefined ? '' : ` in ${first.parent}`;
  return [`${count(group.length, ...first.counted)}${where}`];
}

/** `table inet nat` becomes `table inet nat: 2 chains, 5 rules`. */
function contentsOf({ key }: StateObject, objects: readonly StateObject[]): string {
  const tally = new Map<readonly [string, string], number>();
  for (const { parent, counted } of objects) {
    if (parent !== key || counted === undefined) continue;
    const known = [...tally.keys()].find(names => names[1] === counted[1]) ?? counted;
    tally.set(known, (tally.get(known) ?? 0) + 1);
  }
  if (!tally.size) return '';
  return `: ${[...tally].map(([names, number]) => count(number, ...names)).join(', ')}`;
}

/** Drops objects that were deleted with their device and need no line of their own. */
function withoutParts(objects: readonly StateObject[]): StateObject[] {
  const keys = new Set(objects.map(({ key }) => key));
  return objects.filter(({ parent, counted }) => counted || parent === undefined || !keys.has(parent));
}

function changeOf(before: StateObject | undefined, after: StateObject): string | undefined {
  const changes = Object.entries(after.state ?? {}).flatMap(([name, value]) => {
    const old = before?.state?.[name];
    return old === undefined || old === value ? [] : [renderChange(name, old, value)];
  });
  if (!changes.length) return undefined;
  const subject = after.key.replace(/^link /, '');
  // A kernel parameter's change already names it.
  if (after.key.startsWith('sysctl ')) return changes.join(', ');
  return `${subject}: ${changes.join(', ')}`;
}

function renderChange(name: string, old: string, value: string): string {
  if (name === 'state') return value;
  return `${name} ${old} → ${value}`;
}
