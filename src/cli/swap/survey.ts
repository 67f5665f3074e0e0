// What is known about an executable before it is replaced?
import { lstatSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type { AnswerOf } from '../../answers/kinds.ts';
import type { Conflist } from '../../chain/config/conflist.ts';
import { findPlugin } from '../../chain/config/find-plugin.ts';
import { listNetworks } from '../../chain/config/load.ts';
import { listUses } from '../../chain/config/plugin-uses.ts';
import { absolutePath } from '../../files/absolute-path.ts';
import { findDigest, listSwaps } from '../../install/swap.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { confDirOf } from '../target.ts';

/** What is known about the executable that a network calls for a plugin type. */
export type Survey = AnswerOf<'SurveyList'>['items'][number];

/** @throws CniError if the executable does not exist */
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
    link: type,
    target,
    digest: findDigest(target) ?? '',
    hidden: pluginDirs.map(dir => resolve(dir, type)).filter(path => path !== target && isFile(path)),
    otherNames: listOtherNames(target),
    calledBy: lists.flatMap(({ name, plugins }) =>
      listUses({ plugins })
        .filter(use => use.type === type)
        .map(({ index, as }) => ({ network: name, index, as })),
    ),
    swaps: listSwaps(target),
  };
}

/**
 * The file that contains a conflist; the examinations read it again.
 * @throws UsageError if no file contains it
 */
export function findListFile(call: CommandCall, network: string): string {
  const file = call.text('file');
  if (file !== undefined) return absolutePath(file, call.cwd);
  const dir = absolutePath(confDirOf(call), call.cwd);
  const found = listNetworks(dir).networks.find(({ list }) => list.name === network);
  if (found !== undefined) return resolve(dir, found.file);
  throw new UsageError('Cannot swap: name the file of the list with --file <conflist>');
}

/** The survey as text, one fact per line. */
export function renderSurvey({ link, target, digest, calledBy, ...known }: Survey): string {
  const uses = calledBy.map(
    ({ network, index, as }) => `${network} ${index}${as === 'link' ? '' : ` (${as})`}`,
  );
  const rows: [string, readonly string[]][] = [
    ['in place', [`${target} (${shortDigest(digest)})`]],
    ['called by', [uses.join(', ')]],
    ['never called', known.hidden.map(path => `${path}: it comes later in CNI_PATH`)],
    ['same file', known.otherNames.length ? [`${known.otherNames.join(', ')}: they are not changed`] : []],
    ['to undo', known.swaps.map(({ time, from }) => `${time} ${from}`)],
  ];
  const lines = rows.flatMap(([name, values]) => values.map(value => `  ${name.padEnd(12)}  ${value}`));
  return `link ${link}\n${lines.join('\n')}\n`;
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
