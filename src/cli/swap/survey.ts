// What is there to know of an executable before another one takes its place?
import { lstatSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type { Conflist } from '../../chain/conflist.ts';
import { findPlugin } from '../../chain/find-plugin.ts';
import { type LinkUse, listUses } from '../../chain/link-types.ts';
import { listNetworks } from '../../chain/load.ts';
import { findDigest } from '../../install/swap.ts';
import { listSwaps, type Swap } from '../../install/swap-note.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { confDirOf } from '../target.ts';

/** An entry of a network that calls the executable. */
export interface NetworkUse extends Pick<LinkUse, 'index' | 'as'> {
  readonly network: string;
}

/** What is known of the executable that a network calls by a type. */
export interface Survey {
  readonly type: string;
  /** What `CNI_PATH` leads to. */
  readonly target: string;
  readonly digest: string;
  /** Files of the same name that come later on `CNI_PATH`, so that nobody calls them. */
  readonly hidden: readonly string[];
  /** Other names of the same file in its directory. */
  readonly otherNames: readonly string[];
  /** The network itself comes first. */
  readonly uses: readonly NetworkUse[];
  /** What can be undone, oldest first. */
  readonly swaps: readonly Swap[];
}

/** @throws CniError when there is no such executable */
export function survey(
  call: CommandCall,
  list: Conflist,
  type: string,
  pluginDirs: readonly string[],
): Survey {
  const target = findPlugin(type, pluginDirs);
  const others = listNetworks(confDirOf(call)).networks.map(one => one.list);
  const lists = [list, ...others.filter(({ name }) => name !== list.name)];
  return {
    type,
    target,
    digest: findDigest(target) ?? '',
    hidden: pluginDirs.map(dir => resolve(dir, type)).filter(path => path !== target && isFile(path)),
    otherNames: listOtherNames(target),
    uses: lists.flatMap(({ name, plugins }) =>
      listUses({ plugins })
        .filter(use => use.type === type)
        .map(({ index, as }) => ({ network: name, index, as })),
    ),
    swaps: listSwaps(target),
  };
}

/**
 * The file that a list is in: examinations read it again.
 * @throws UsageError when it is in none
 */
export function findListFile(call: CommandCall, network: string): string {
  const file = call.text('file');
  if (file !== undefined) return resolve(call.cwd, file);
  const dir = resolve(call.cwd, confDirOf(call));
  const found = listNetworks(dir).networks.find(({ list }) => list.name === network);
  if (found !== undefined) return resolve(dir, found.file);
  throw new UsageError('Cannot swap: say which file the list is in, --file <conflist>');
}

/** What is known, one fact a line. */
export function renderSurvey({ type, target, digest, ...known }: Survey): string {
  const uses = known.uses.map(
    ({ network, index, as }) => `${network} ${index}${as === 'link' ? '' : ` (${as})`}`,
  );
  const rows: [string, readonly string[]][] = [
    ['in place', [`${target} (${shortDigest(digest)})`]],
    ['called by', [uses.join(', ')]],
    ['never called', known.hidden.map(path => `${path}: it comes later on CNI_PATH`)],
    ['same file', known.otherNames.length ? [`${known.otherNames.join(', ')}: they stay what they are`] : []],
    ['to undo', known.swaps.map(({ time, from }) => `${time} ${from}`)],
  ];
  const lines = rows.flatMap(([name, values]) => values.map(value => `  ${name.padEnd(12)}  ${value}`));
  return `link ${type}\n${lines.join('\n')}\n`;
}

/** Enough of a digest to tell two files apart by eye. */
export function shortDigest(digest: string): string {
  return `sha256 ${digest.slice(0, 12)}`;
}

function listOtherNames(target: string): string[] {
  const own = lstatSync(target);
  if (!own.isFile() || own.nlink < 2) return [];
  const isOwn = (name: string) => {
    const stat = lstatSync(join(dirname(target), name), { throwIfNoEntry: false });
    return name !== basename(target) && stat?.dev === own.dev && stat.ino === own.ino;
  };
  return readdirSync(dirname(target)).filter(isOwn).sort();
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}
