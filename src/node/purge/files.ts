// Which files did we write while attachments came and went, and how are they removed without those of others?

import { lstatSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { namesIn } from '../../files/read-file.ts';
import { listLeases } from '../../ipam/lease-files.ts';
import { holdFlock } from '../../sys/flock.ts';

/** Outcome, or plan, for a table, a device, a file or a directory. */
export type PurgeStep = NonNullable<AnswerOf<'Uninstallation'>['purged']>[number];

/** Directories that are ours alone, and those that we share. */
export interface PurgePlaces {
  readonly runDir: string;
  readonly stateDir: string;
  /** Directories of leases, in host-local's format. */
  readonly leaseDirs: readonly string[];
  /** Directories of executables. */
  readonly binDirs: readonly string[];
  /** Directories shared with others, which go if nothing is in them; a directory comes before the one that it is in. */
  readonly shared: readonly string[];
  /** Names of plugins: they have files and directories of these names. */
  readonly types: readonly string[];
}

/** What processes of ours have in the run directory and in the state directory, besides what plugins have. */
const KNOWN = new RegExp(
  `^(${[
    'catena\\.sock.*',
    '(watch|between)\\.lock',
    // Those of plugins name the namespace that they lock in by its inode.
    '[a-z0-9-]+-\\d+(-.*)?\\.lock',
    '\\.catena-.*',
    'between\\.json',
    'boot|caches|delegates|gc|generations|history|locks|pods|running|traces|unsettled|upkeep',
  ].join('|')})$`,
);
const SWAPS = '.catena-swap';
/** Those of host-local; the reference creates them again. */
const OF_THE_NETWORK = /^(last_reserved_ip\..*|lock)$/;
const OWN = /^\.catena-/;

/**
 * Removes what is ours. A directory that has something else in it stays, so that a wrong path does no harm.
 * @param dryRun only look
 */
export function purgeFiles(places: PurgePlaces, dryRun: boolean): PurgeStep[] {
  const { runDir, stateDir, leaseDirs, binDirs, shared, types } = places;
  const remover = new Remover(dryRun);
  const isKnown = (name: string) => KNOWN.test(name) || types.includes(name);
  for (const dir of new Set([runDir, stateDir])) {
    for (const name of namesIn(dir)) {
      if (isKnown(name)) remover.remove(join(dir, name));
      else remover.keep(join(dir, name), 'it is not known to be ours');
    }
    remover.prune(dir);
  }
  for (const dir of leaseDirs) purgeLeases(dir, remover);
  for (const dir of binDirs) if (namesIn(dir).includes(SWAPS)) remover.remove(join(dir, SWAPS));
  for (const dir of shared) remover.prune(dir);
  return remover.steps;
}

/** Leases that stand are those of attachments that other plugins delete from now on. */
function purgeLeases(dir: string, remover: Remover): void {
  const names = namesIn(dir);
  // Only the reference has used it.
  if (!names.some(name => OWN.test(name))) return;
  const release = remover.dryRun ? () => {} : holdFlock(join(dir, 'lock'));
  if (release === undefined) {
    remover.keep(dir, 'a process is working in it');
    return;
  }
  try {
    const isFree = listLeases(dir).length === 0;
    for (const name of names)
      if (OWN.test(name) || (isFree && OF_THE_NETWORK.test(name))) remover.remove(join(dir, name));
    remover.prune(dir);
  } finally {
    release();
  }
}

class Remover {
  readonly steps: PurgeStep[] = [];
  readonly dryRun: boolean;
  readonly #gone = new Set<string>();

  constructor(dryRun: boolean) {
    this.dryRun = dryRun;
  }

  remove(path: string): void {
    const isDir = lstatSync(path, { throwIfNoEntry: false })?.isDirectory();
    if (!this.dryRun) rmSync(path, { recursive: true, force: true });
    this.#note(path, isDir ? 'directory' : 'file');
  }

  keep(path: string, why: string): void {
    this.steps.push({ action: 'keep', what: path, why });
  }

  /** Removes a directory if nothing is left in it. */
  prune(dir: string): void {
    if (!lstatSync(dir, { throwIfNoEntry: false })?.isDirectory()) return;
    if (namesIn(dir).some(name => !this.#gone.has(join(dir, name)))) return;
    try {
      if (!this.dryRun) rmdirSync(dir);
    } catch (cause) {
      // Another process has just put something there, or it is a mount point.
      this.keep(dir, (cause as Error).message);
      return;
    }
    this.#note(dir, 'directory');
  }

  #note(path: string, kind: string): void {
    this.#gone.add(path);
    this.steps.push({ action: 'remove', what: `${kind} ${path}` });
  }
}
