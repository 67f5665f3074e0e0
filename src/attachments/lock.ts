// Which process works on an attachment, and how does exactly one get the right to?
//
// A lock is a directory that is not empty. Its entry, a symbolic link, is named after the owner's operation, and its target says the rest.
// Only renaming a prepared directory to that path gives the lock, which the kernel refuses unless there is none or an empty one. A thief
// removes entries by the names of operations that are dead, so it can never remove a living owner's. It keeps a copy of them: what their
// orphans still do is known until these are gone. The directory is in the run directory, so it excludes on a full or read-only disk, too.
import { mkdirSync, readlinkSync, renameSync, rmdirSync, rmSync, symlinkSync, unlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { AttachmentId } from '../cni/attachment.ts';
import { lockScopeOf, notesDirs, runDir } from '../cni/directories.ts';
import { bootId } from '../files/boot-id.ts';
import { fileFailure } from '../files/failure.ts';
import { isRunning } from '../files/process-stat.ts';
import { namesIn } from '../files/read-file.ts';
import { isOfEarlierBoot } from './boot.ts';
import { hasOrphans } from './orphan-processes.ts';
import { directoryOf, fileNameOf } from './place.ts';
import { endRunner, isAlive, type Runner, startRunner } from './runner.ts';

/** What a lock is for. `remove`: a deletion that no runtime asked for, so the ADD of another runtime waits for its end. */
export type Purpose = 'add' | 'del' | 'remove' | 'change' | 'repair';

/** Whose attachments a lock is about. */
export interface LockPlace {
  /** The journal that has, or would have, their records. */
  readonly stateDir: string;
  /** Names the run directory; that of this process unless given. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
}

/** The right of one operation to work on an attachment. */
export interface Lock {
  readonly runner: Runner;
  /** Operations that had the lock and died: their orphans may still work on the attachment. */
  readonly dead: readonly Runner[];
  /** Goes on for another purpose, without giving the lock away. @throws CniError 5 */
  become(purpose: Purpose): void;
  /** The orphans of the dead are gone. */
  forgetDead(): void;
  /** Also forgets the dead, if nothing of them runs any longer. Safe to repeat. */
  release(): void;
}

/** An attachment, or the path of its lock below the scope. */
export type LockKey = AttachmentId | string;

/**
 * Takes the lock of an attachment, or tells who has it.
 * @param deadlineMs milliseconds after which the operation ends a plugin
 * @throws CniError 5: the run directory cannot be written
 */
export function takeLock(
  place: LockPlace,
  key: LockKey,
  purpose: Purpose,
  deadlineMs?: number,
): Lock | { readonly holder: Runner } {
  const dir = dirOf(place, key);
  const runner = startRunner(deadlineMs);
  let isOurs = false;
  try {
    for (let tries = 0; ; tries++) {
      const owners = ownersIn(dir, place.env);
      const holder = owners.find(({ isLiving }) => isLiving)?.runner;
      if (holder) return { holder };
      isOurs = put(dir, runner, targetOf(runner, purpose, place.env), owners, tries < MOST_TRIES);
      if (isOurs) return lockOf(dir, runner, owners, place.env);
    }
  } catch (cause) {
    throw fileFailure('lock', dir, cause);
  } finally {
    if (!isOurs) endRunner(runner);
  }
}

/** Each try that fails needs another process that has just changed the directory. */
const MOST_TRIES = 100;

/** The living operation that has the lock of an attachment. */
export function findHolder(place: LockPlace, key: LockKey): Runner | undefined {
  return ownersIn(dirOf(place, key), place.env).find(({ isLiving }) => isLiving)?.runner;
}

/** A killed operation counts as dead from now on, even if the freezer keeps its process. */
export function buryOwner(place: LockPlace, key: LockKey, { op }: Runner): void {
  const entry = join(dirOf(place, key), op);
  try {
    renameSync(entry, `${entry}${OF_DEAD}${op}`);
  } catch {
    // It has no lock: the record alone names it.
  }
}

/**
 * Whether a living process deletes the attachment without a request of its runtime. Processes of another process id namespace cannot be
 * seen: they count as ended, so that no ADD waits for ever.
 */
export function isBeingRemoved(env: LockPlace['env'], id: AttachmentId): boolean {
  return REMOVING_SCOPES.some(scope => {
    const dir = join(notesDirs(runDir(env)).locks, scope, pathOf(id));
    return ownersIn(dir, env).some(
      ({ runner, purpose, isLiving }) => purpose === 'remove' && isLiving && isRunning(runner) === true,
    );
  });
}

/** Where removals are of attachments that a plugin of ours may be adding. A pod is removed by its networks. */
const REMOVING_SCOPES = ['own', 'delegates'];

/** The name of an operation, of runner.ts. */
export const OPERATION = /^(\d+)-(\d*)-\d+$/;

/** An operation that has, or had, a lock. */
export interface Owner {
  /** Of the entry. */
  readonly name: string;
  readonly target: string;
  readonly runner: Runner;
  readonly purpose: string;
  readonly isLiving: boolean;
  /** Of this boot: something of it may still run. */
  readonly mayLinger: boolean;
}

/** Between the operation that has died and the one that has kept its entry, so that each entry has a name of its own. */
const OF_DEAD = '@';

const dirOf = ({ stateDir, env }: LockPlace, key: LockKey) =>
  join(notesDirs(runDir(env)).locks, lockScopeOf(stateDir), typeof key === 'string' ? key : pathOf(key));

const pathOf = (id: AttachmentId) => join(directoryOf(id.network), fileNameOf(id));

function targetOf({ pidns, deadlineMs, time }: Runner, purpose: Purpose, env: LockPlace['env']): string {
  return [purpose, pidns, bootId(env), deadlineMs ?? '', Date.parse(time)].join(' ');
}

/** What is in the directory of a lock. */
export function ownersIn(dir: string, env: LockPlace['env']): Owner[] {
  return namesIn(dir).flatMap(name => {
    try {
      return ownerOf(name, readlinkSync(join(dir, name)), env) ?? strangerOf(name);
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'ENOENT' ? [] : strangerOf(name);
    }
  });
}

function ownerOf(name: string, target: string, env: LockPlace['env']): Owner | undefined {
  const [op = '', keeper] = name.split(OF_DEAD);
  const [, pid, start = ''] = OPERATION.exec(op) ?? [];
  if (pid === undefined) return undefined;
  const [purpose = '', pidns = '', boot = '', deadlineMs = '', since = '0'] = target.split(' ');
  const deadline = deadlineMs === '' ? {} : { deadlineMs: Number(deadlineMs) };
  const time = new Date(Number(since) || 0).toISOString();
  const runner = { pid: Number(pid), start, pidns, op, time, ...deadline };
  const mayLinger = !isOfEarlierBoot({ boot }, env);
  return {
    name,
    target,
    runner,
    purpose,
    isLiving: keeper === undefined && mayLinger && isAlive(runner),
    mayLinger,
  };
}

/** What is not ours is removed like the entry of an operation that has died. */
function strangerOf(name: string): Owner {
  const runner = { pid: 0, start: '', pidns: '', op: name, time: '' };
  return { name, target: '', runner, purpose: '', isLiving: false, mayLinger: false };
}

/**
 * @param dead the entries that are there
 * @returns whether the lock is ours; false only if it is worth another try
 */
function put(dir: string, { op }: Runner, target: string, dead: readonly Owner[], mayFail: boolean): boolean {
  const locks = dirname(dirname(dirname(dir)));
  const fresh = join(locks, `.${op}`);
  try {
    makeIn(locks, () => mkdirSync(fresh, 0o700));
    symlinkSync(target, join(fresh, op));
    for (const one of dead) {
      if (one.mayLinger) symlinkSync(one.target, join(fresh, keptName(one, op)));
      rmSync(join(dir, one.name), { recursive: true, force: true });
    }
    makeIn(dirname(dir), () => renameSync(fresh, dir));
    return true;
  } catch (error) {
    discard(fresh);
    const { code = '' } = error as NodeJS.ErrnoException;
    // Another one was faster, or a sweep has taken our directory for that of a dead process.
    if (mayFail && ['ENOTEMPTY', 'EEXIST', 'ENOENT'].includes(code)) return false;
    throw error;
  }
}

const keptName = ({ runner }: Owner, op: string) => `${runner.op}${OF_DEAD}${op}`;

function makeIn(parent: string, work: () => void): void {
  try {
    work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    mkdirSync(parent, { recursive: true, mode: 0o700 });
    work();
  }
}

function lockOf(dir: string, runner: Runner, owners: readonly Owner[], env: LockPlace['env']): Lock {
  const { op } = runner;
  let isReleased = false;
  let lingering = owners.filter(({ mayLinger }) => mayLinger);
  const forgetDead = () => {
    for (const one of lingering) remove(join(dir, keptName(one, op)));
    lingering = [];
  };
  return {
    runner,
    dead: lingering.map(one => one.runner),
    become(purpose) {
      const fresh = join(dirname(dirname(dirname(dir))), `.${op}`);
      try {
        symlinkSync(targetOf(runner, purpose, env), fresh);
        renameSync(fresh, join(dir, op));
      } catch (cause) {
        discard(fresh);
        throw fileFailure('keep the lock', dir, cause);
      }
    },
    forgetDead,
    release() {
      if (isReleased) return;
      isReleased = true;
      // Of an attachment that is settled, or has no record, nothing else would look for them.
      if (lingering.length > 0 && !hasOrphans(lingering.map(one => one.runner))) forgetDead();
      remove(join(dir, op));
      endRunner(runner);
      try {
        rmdirSync(dir);
      } catch {
        // Another one has it already, or the orphans of the dead are not gone.
      }
    },
  };
}

/** Ignores errors, so as not to hide why the lock could not be taken; the next verb sweeps it. */
function discard(fresh: string): void {
  try {
    rmSync(fresh, { recursive: true, force: true });
  } catch {
    // A read-only disk, for example.
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // The run directory was lost.
  }
}
