// How is the change between two states or results described concisely, and what did a container leave behind?

import { isInMainTable, type Result, type ResultRoute, spreadGateways } from '../cni/result.ts';
import { count } from './words.ts';

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

export function stateOf(objects: readonly StateObject[]): State {
  return new Map(objects.map(object => [object.key, object]));
}

export interface Snapshot {
  readonly host: State;
  readonly container: State;
  readonly files: State;
}

interface Difference {
  readonly added: readonly StateObject[];
  readonly removed: readonly StateObject[];
  /** Objects that still exist, with a description of their changed values. */
  readonly changed: readonly { readonly object: StateObject; readonly words: string }[];
}

/** More objects of a kind than this are counted instead of listed. */
const LISTED = 2;

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

/** The state at one moment, by place: `host`, the names of containers, and `files`. */
export type KernelState = ReadonlyMap<string, State>;

/** The differences, one per line: `host: + veth veth1a2b`, `c1: eth0: mtu 1500 → 1400`. Empty if there are none. */
export function diffKernelStates(before: KernelState, after: KernelState): string[] {
  const names = new Set([...before.keys(), ...after.keys()]);
  return [...names].flatMap(name => {
    const [old, now] = [before.get(name), after.get(name)];
    // A container that was created or removed is not a plugin's doing.
    if (old === undefined || now === undefined) return [];
    return renderDifference(diffStates(old, now)).map(line => `${name}: ${line}`);
  });
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
    if (old === undefined || old === value) return [];
    return name === 'state' ? value : `${name} ${old} → ${value}`;
  });
  if (!changes.length) return undefined;
  // A kernel parameter's change already names it.
  const subject = after.key.startsWith('sysctl ') ? '' : `${after.key.replace(/^link /, '')}: `;
  return `${subject}${changes.join(', ')}`;
}

/** The judgement on the differences between the state before ADD and after DEL. */
interface Leftovers {
  /** A container's objects that should have been deleted, and the host's own that should not have. */
  readonly left: readonly string[];
  /** Objects of the network: a bridge, a table, a lock file. The next container uses them again. */
  readonly kept: readonly string[];
}

/** What distinguishes a container's objects from its network's. */
interface Marks {
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

/** Short lines: `+ cni0`, `+ 10.1.0.2/24`, `- route 0.0.0.0/0`; none when the plugin passed the result on unchanged. */
export function diffResults(before: Result | undefined, after: Result): string[] {
  const old = linesOf(before ?? {});
  const fresh = linesOf(after);
  return [
    ...fresh.filter(line => !old.includes(line)).map(line => `+ ${line}`),
    ...old.filter(line => !fresh.includes(line)).map(line => `- ${line}`),
  ];
}

function linesOf({ interfaces = [], ips = [], routes = [], dns = {} }: Result): string[] {
  return [
    ...interfaces.map(({ name, sandbox, mtu }) => {
      const size = mtu ? `, mtu ${mtu}` : '';
      return `${name}${sandbox ? ' (container)' : ''}${size}`;
    }),
    ...ips.map(({ address, gateway }) => (gateway ? `${address} gateway ${gateway}` : address)),
    ...spreadGateways(routes).map(routeLine),
    ...Object.entries(dns).flatMap(([key, value]) => {
      const words = Array.isArray(value) ? value.join(' ') : String(value);
      return words === '' ? [] : [`dns ${key} ${words}`];
    }),
  ];
}

function routeLine(route: ResultRoute): string {
  const { dst, gw, table } = route;
  return `route ${dst}${gw ? ` via ${gw}` : ''}${isInMainTable(route) ? '' : ` table ${table}`}`;
}
