// What happens to the containers of both twins, what does a twin record of it, and which executables does the second one run instead of the first one's?
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ensureDirSync, ensureSymlinkSync } from 'fs-extra/esm';
import { type Conflist, listUses } from '../../chain/config/conflist.ts';
import { findPlugin } from '../../chain/config/find-plugin.ts';
import type { Exec } from '../../chain/run/segment.ts';
import { defined, isObject, type JsonObject } from '../../cni/json.ts';
import { absolutePath } from '../../files/read-file.ts';
import { execInstead } from '../play.ts';

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

/** The scene that shows whether B can delete what A made. */
export const DELETED_BY_B = 'ADD by A, DEL';
/** The scene that shows whether B can delete what A made and handed over. */
export const DELETED_AFTER_HANDOVER = 'ADD by A, handed over, DEL';

const scene = (name: string, ...steps: readonly Step[]): Scene => ({ name, steps });

/** From the usual to the awkward; each starts from scratch. */
export const SCENES: readonly Scene[] = [
  scene('life', { verb: 'STATUS' }, ADD, CHECK, DEL, { ...DEL, name: 'DEL again' }),
  scene(
    'two containers',
    ADD,
    { ...ADD, who: 2, name: 'ADD of a second' },
    { ...DEL, name: 'DEL of the first' },
    { ...CHECK, who: 2, name: 'CHECK of the second' },
    { ...DEL, who: 2, name: 'DEL of the second' },
  ),
  scene('twice', ADD, { ...ADD, name: 'ADD again' }, { ...CHECK, name: 'CHECK after that' }, DEL),
  scene(
    'out of order',
    { ...DEL, name: 'DEL before ADD' },
    { ...CHECK, name: 'CHECK before ADD' },
    ADD,
    DEL,
    { ...CHECK, name: 'CHECK after DEL' },
  ),
  scene('damaged', ADD, { verb: 'damage' }, { ...CHECK, name: 'CHECK of damage' }, DEL),
  scene('namespace gone', ADD, { verb: 'remove namespace' }, { ...DEL, name: 'DEL without the namespace' }),
  scene('namespace forgotten', ADD, { ...DEL, withoutNetns: true, name: 'DEL with an empty CNI_NETNS' }),
  scene(
    'garbage',
    ADD,
    { ...ADD, who: 2, name: 'ADD of a second' },
    { verb: 'GC' },
    { ...CHECK, name: 'CHECK after GC' },
    DEL,
  ),
  ...(['A', 'B'] as const).flatMap(maker =>
    [DEL, CHECK].map(({ verb }) => ({
      ...scene(`ADD by ${maker}, ${verb}`, { ...ADD, by: maker }, { verb }),
      crossing: { maker, verb },
    })),
  ),
  {
    ...scene(DELETED_AFTER_HANDOVER, { ...ADD, by: 'A' }, { verb: 'hand over', by: 'A' }, DEL),
    crossing: { maker: 'A', verb: 'DEL' },
    onDemand: true,
  },
];

/** The complete state at one moment: namespaces by name, and files by path. */
export interface Sight {
  readonly places: Readonly<Record<string, Observation>>;
  readonly files: Readonly<Record<string, string>>;
}

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

/** The executables that the second twin runs instead. */
interface Swap {
  /** A directory of executables, or one executable. */
  readonly target: string;
  /** Plugin types found there. */
  readonly types: readonly string[];
  /** The only entry to swap, when several have the type. */
  readonly index?: number;
}

/** The directory in the lab that contains only the swapped executables. */
const SWAP_DIR = '/run/catena-compare';

/**
 * Interprets the user's choice: a directory swaps every plugin that it contains, an executable the plugin of its name, and
 * `--plugin` only that one.
 * @param choice a type, or the index of an entry in the conflist
 * @throws Error when there is no such plugin or executable
 */
export function readSwap(list: Conflist, given: string, choice: string | undefined): Swap {
  const target = absolutePath(given);
  if (!existsSync(target)) throw new Error(`Cannot compare with "${given}": it does not exist`);
  const known = typesOf(list);
  const [type, index] = choice === undefined ? [undefined, undefined] : readChoice(list, known, choice);
  if (!statSync(target).isDirectory()) {
    const own = type ?? basename(target);
    if (known.includes(own)) return { target, types: [own], ...defined({ index }) };
    throw new Error(
      `Cannot compare with "${given}": the list has no plugin "${own}", but ${known.join(', ')}; choose one with --plugin`,
    );
  }
  if (type !== undefined) {
    findPlugin(type, [target]);
    return { target, types: [type], ...defined({ index }) };
  }
  const there = known.filter(one => statSync(join(target, one), { throwIfNoEntry: false })?.isFile());
  if (there.length) return { target, types: there };
  throw new Error(`Cannot compare with "${given}": it has none of ${known.join(', ')}`);
}

/**
 * The type that a user specified, directly or by the index of an entry.
 * @throws Error when the conflist has no such plugin
 */
export function findType(list: Conflist, choice: string): string {
  return readChoice(list, typesOf(list), choice)[0];
}

/** Directories that must be visible in the lab. */
export function homesOf({ target }: Swap): string[] {
  return statSync(target).isDirectory() ? [target] : [dirname(target)];
}

/** Links the executables into a directory of their own in the lab, and returns how the second twin runs plugins. */
export function laySwap(
  { target, types, index }: Swap,
  list: Conflist,
  pluginDirs: readonly string[],
): { pluginDirs: readonly string[]; exec?: Exec; shown: string } {
  ensureDirSync(SWAP_DIR);
  const isDir = statSync(target).isDirectory();
  for (const type of types) ensureSymlinkSync(isDir ? join(target, type) : target, join(SWAP_DIR, type));
  const place = { pluginDirs: [SWAP_DIR, ...pluginDirs], shown: SWAP_DIR };
  if (index === undefined) return place;
  const entry = list.plugins[index]?.conf ?? {};
  return { ...place, pluginDirs, exec: execFor(entry, join(SWAP_DIR, types[0] ?? '')) };
}

/** When other entries have the same type, a request is matched to this entry by its configuration. */
function execFor(entry: JsonObject, executable: string): Exec {
  return execInstead((request, found) => {
    const sent: unknown = JSON.parse(request);
    const own = isObject(sent) && Object.keys(entry).every(key => isSame(entry[key], sent[key], key));
    return own ? executable : found;
  });
}

/** The runner overrides an entry's keys with the conflist's name and version and the runtime's arguments. */
function isSame(configured: unknown, sent: unknown, key: string): boolean {
  return (
    ['name', 'cniVersion', 'runtimeConfig', 'prevResult'].includes(key) || toText(configured) === toText(sent)
  );
}

/** Types of plugins, and of the plugins that they call. */
function typesOf(list: Conflist): string[] {
  return [...new Set(listUses(list).map(({ type }) => type))];
}

function readChoice(list: Conflist, known: readonly string[], choice: string): [string, number | undefined] {
  if (known.includes(choice)) return [choice, undefined];
  const entry = /^\d+$/.test(choice) ? list.plugins[Number(choice)] : undefined;
  if (entry === undefined) {
    throw new Error(
      `Cannot use --plugin "${choice}": the list has ${known.join(', ')}, and indexes 0 to ${list.plugins.length - 1}`,
    );
  }
  const several = list.plugins.filter(({ type }) => type === entry.type).length > 1;
  return [entry.type, several ? Number(choice) : undefined];
}
