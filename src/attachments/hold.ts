// How does an operation get the right to work on an attachment, and how does it note what it does?
// README.md has the order of what is written, and what `pastOf` makes of what a dead process has left.

import { basename } from 'node:path';
import { type AttachmentId, cacheFileOf, describeAttachment } from '../cni/attachment.ts';
import { cacheDirOf } from '../cni/directories.ts';
import { CniError, ErrorCode, invalidConfig, orTell, toCniError, tryAgainLater } from '../cni/errors.ts';
import { defined, type JsonObject } from '../cni/json.ts';
import { bootId, endFrozen, isFrozen, isOfEarlierBoot, processIds } from '../files/process-stat.ts';
import { fileExists, tryRead } from '../files/read-file.ts';
import {
  compareNetns,
  findNetnsCookie,
  findNetnsIdentity,
  hostCookie,
  identifyNetns,
} from '../sys/netns-identity.ts';
import { LOCK_DEADLINE_MS, pause } from '../wait.ts';
import {
  type Entry,
  isOfAnother,
  putEntryBack,
  removeAside,
  removeEntry,
  replaceEntry,
  sweepCache,
  writeEntry,
} from './entries.ts';
import {
  awaitOrphans,
  buryOwner,
  endOrphanAdds,
  holderOf,
  type Lock,
  type LockPlace,
  type Orphaned,
  type Purpose,
  type Runner,
  takeLock,
} from './lock.ts';
import {
  begunAdd,
  createNote,
  dropNote,
  dropRecord,
  entryOf,
  findLaterAdd,
  type Intent,
  isEntryOf,
  type KnownAttachment,
  keepCacheDir,
  lastBegun,
  lifeIn,
  lifeOf,
  madeAgain,
  type PendingChange,
  type RecordedError,
  readRecord,
  type Settings,
  tryEntry,
  writeNote,
} from './notes.ts';

/** Who holds an attachment, and what for. */
export interface HoldCall {
  /** The journal; without one there are neither locks nor notes, and only the entry is written. */
  readonly stateDir?: string | undefined;
  /** Of libcni's entries: `CATENA_CNI_CACHE_DIR` unless given. */
  readonly cacheDir?: string | undefined;
  readonly env?: LockPlace['env'];
  readonly purpose: Purpose;
  /** What an ADD notes of its caller, as in {@link Intent}. */
  readonly owner?: string;
  readonly request?: string;
  readonly pluginDirs?: readonly string[];
  /** Milliseconds after which the operation ends a plugin. */
  readonly deadlineMs?: number;
  readonly signal?: AbortSignal | undefined;
  readonly onWarning?: ((warning: CniError) => void) | undefined;
}

/** What operations, or a reboot, have left of an attachment. */
export interface Past {
  /**
   * `settled`: its ADD succeeded, and nothing has begun since. `changing`: plugins were about to change it, which is undone or finished.
   * `adding`, `deleting`: its ADD or DEL was cut off. `left`: its DEL has failed. `outlived`: it is of an earlier boot. `elsewhere`: it is up
   * to another network namespace of this machine.
   */
  readonly kind: 'settled' | 'changing' | 'adding' | 'deleting' | 'left' | 'outlived' | 'elsewhere';
  /** Why it is not simply there, human-readable; undefined if it is, also while it is changing. */
  readonly why: string | undefined;
  /** Its ADD succeeded, and no DEL has begun. It may have outlived its namespace. */
  readonly stands: boolean;
  /** The process that works on it, as far as its note says. */
  readonly holder: Runner | undefined;
  /** Why it is to be deleted now; undefined if it is there, a process works on it, or that is up to another network namespace. */
  readonly toDelete: string | undefined;
  /**
   * Where the namespace of its ADD is: `same` if a path, that of the ADD unless given, leads to it as far as can be told, `gone` if it does
   * not exist, as after a reboot, `other` if the path leads to another one. The path may be visible to others only: see judgeGone() of
   * chain/records/known-add.ts.
   */
  netns(path?: string): 'same' | 'gone' | 'other';
  /**
   * For a DEL or an ADD that names this attachment. If no process and no mount that can be seen has that namespace any longer, what was
   * made in it has ended with it, as after a restart of a node that is itself a container.
   * @throws CniError 11 naming a path of the namespace
   */
  refuseElsewhere(): void;
}

export interface HeldKnown extends Held {
  readonly record: KnownAttachment;
  readonly past: Past;
}

/** Longest wait for a process that is stopped. */
const FROZEN_MS = 1_000;
const LOOK_AGAIN_MS = 50;

/**
 * Holds an attachment. Waits while another process does. A DEL, which must go on, continues without the lock, with a warning, if the run
 * directory cannot be written.
 * @throws CniError 11 when it has waited long enough, or if it was made in another network namespace; 5 when the lock cannot be taken
 */
export async function hold(id: AttachmentId, call: HoldCall): Promise<Held> {
  const { stateDir, env, purpose, onWarning } = call;
  const wait = waitLimit(id, call);
  for (;;) {
    let found: ReturnType<typeof tryHold>;
    try {
      found = tryHold(id, call);
    } catch (error) {
      if (!(error instanceof CniError) || purpose !== 'del' || stateDir === undefined) throw error;
      onWarning?.(error);
      found = new Held(id, call, undefined, lookQuietly(stateDir, id));
    }
    if (!('holder' in found)) return inReach(found);
    if ((await wait(found.holder)) && stateDir !== undefined) buryOwner({ stateDir, env }, id, found.holder);
  }
}

/** The same, but tells who holds it instead of waiting. @throws CniError 5 when the lock cannot be taken */
export function tryHold(id: AttachmentId, call: HoldCall): Held | { readonly holder: Runner } {
  const { stateDir, env, purpose, deadlineMs, onWarning } = call;
  if (stateDir === undefined) return new Held(id, call, undefined, undefined);
  const lock = takeLock({ stateDir, env }, id, purpose, deadlineMs);
  if ('holder' in lock) return lock;
  const record = lookQuietly(stateDir, id, onWarning);
  // The run directory may have been lost. One that was killed may still be there, if the freezer keeps it.
  const isDead = ({ op }: Runner) => lock.dead.some(one => one.op === op);
  const holder = record && holderOf({ runners: record.runners.filter(one => !isDead(one)) });
  if (holder === undefined) return new Held(id, call, lock, record);
  lock.release();
  return { holder };
}

function inReach(held: Held): Held {
  try {
    held.past?.refuseElsewhere();
    return held;
  } catch (error) {
    held.release();
    throw error;
  }
}

function lookQuietly(
  stateDir: string,
  id: AttachmentId,
  onWarning?: HoldCall['onWarning'],
): KnownAttachment | undefined {
  const clear = ({ cacheDir }: KnownAttachment) => {
    putEntryBack(cacheDir, id);
    dropNote(stateDir, id);
  };
  // On a full disk, for example, a note that is over stays so.
  return orTell(onWarning, () => readRecord(stateDir, id, note => orTell(undefined, () => clear(note))));
}

/**
 * Waits for the process that works on an attachment: a moment per call, up to a limit for all calls together. One that is
 * stopped (SIGSTOP, a frozen cgroup) is killed after a moment, with its workers: it must not continue later.
 * @returns the function to call, which tells whether it has killed it, and throws CniError 11 when the limit is reached
 */
function waitLimit(id: AttachmentId, { signal, onWarning }: HoldCall): (holder: Runner) => Promise<boolean> {
  const begin = performance.now();
  return async holder => {
    const { pid, time } = holder;
    const elapsed = performance.now() - begin;
    if (elapsed > LOCK_DEADLINE_MS || signal?.aborted) {
      throw tryAgainLater(
        `Cannot work on interface "${id.ifname}" of container "${id.containerId}" of network "${id.network}": process ${pid} has been working on it since ${time}`,
      );
    }
    if (elapsed > FROZEN_MS && (await isFrozen(holder)) && (await endFrozen(holder))) {
      onWarning?.(
        new CniError(
          ErrorCode.unknown,
          `Ended process ${pid}, which was stopped while it worked on interface "${id.ifname}" of container "${id.containerId}"`,
        ),
      );
      return true;
    }
    await pause(LOOK_AGAIN_MS);
    return false;
  };
}

interface BegunAdd {
  readonly intent: Omit<Intent, 'runner'>;
  readonly over: boolean;
}

/** The exclusive right to work on an attachment, until it is released. */
export class Held {
  readonly #id: AttachmentId;
  readonly #call: HoldCall;
  readonly #lock: Lock | undefined;
  #record: KnownAttachment | undefined;
  /** Of an ADD, without a journal too. */
  #adding: BegunAdd | undefined;
  /** This operation has noted that an ADD or a DEL begins. */
  #hasBegun = false;

  constructor(id: AttachmentId, call: HoldCall, lock: Lock | undefined, record: KnownAttachment | undefined) {
    this.#id = id;
    this.#call = call;
    this.#lock = lock;
    this.#record = record;
  }

  /** What is known of it, with what this operation has begun; undefined if nothing is, or its note cannot be used. */
  get record(): KnownAttachment | undefined {
    return this.#record;
  }

  /** The same, if anything is known of it. */
  get known(): HeldKnown | undefined {
    return this.#record && (this as HeldKnown);
  }

  /** What operations or a reboot have left of it; undefined if nothing is known of it. */
  get past(): Past | undefined {
    return this.#record && pastOf(this.#record, this.#call.env);
  }

  /** Index of the last plugin that may have begun to work: what is undone is all up to it. */
  lastBegun(plugins: number): number {
    return lastBegun(this.#known(), plugins);
  }

  /** Text that differs between it and a later one of the same name; empty if nothing is known. An unusable entry counts as none. */
  get life(): string {
    const entry = tryEntry(this.#cacheDir, this.#id);
    if (!this.#record) return entry ? lifeIn(entry) : '';
    return lifeOf({ ...this.#record, entry });
  }

  /** Operations that worked on it and died: their orphans may still do. */
  get #orphans(): Orphaned {
    return { ...this.#id, runners: [...(this.#lock?.dead ?? []), ...(this.#record?.runners ?? [])] };
  }

  /**
   * Waits for plugins of a dead runner, and ends those that are past the deadline which the runner had set: what a plugin makes
   * after its DEL would leak. Also deletes the runner's temporary files, and puts back an entry that it had taken aside.
   * @throws CniError 11 when they do not end in time
   */
  async awaitOrphans(): Promise<void> {
    const { onWarning, deadlineMs } = this.#call;
    const wasCutOff = await awaitOrphans(this.#orphans, onWarning, deadlineMs);
    this.#lock?.forgetDead();
    if (!wasCutOff) return;
    sweepCache(this.#cacheDir);
    orTell(onWarning, () => putEntryBack(this.#cacheDir, this.#id));
  }

  /** Ends the plugins of an ADD that a dead runner has left at work on interfaces of the container: their results are not needed. */
  async endOrphanAdds(ifnames: readonly string[]): Promise<void> {
    await endOrphanAdds(this.#orphans, ifnames);
  }

  /** Human-readable evidence that another ADD has begun since that of its record. */
  findLaterAdd(): string | undefined {
    return this.#record && findLaterAdd(this.#record, this.#call.env);
  }

  /** Goes on for another purpose, without giving the lock away. @throws CniError 5 */
  become(purpose: Purpose): void {
    this.#lock?.become(purpose);
  }

  /**
   * An ADD is about to begin, which the first {@link progress} notes.
   * @param over an attachment of an earlier ADD stands: it is replaced when all has succeeded, and until then nothing is noted
   * @throws CniError 7 if its entry would be another attachment's
   */
  beginAdd(
    wanted: Pick<Intent, 'netns' | 'args' | 'capabilityArgs' | 'source' | 'executables'>,
    over: boolean,
  ): void {
    const { env, owner = '', request, pluginDirs = [] } = this.#call;
    const cacheDir = this.#callersCacheDir;
    refuseUnfitName(this.#id, cacheDir);
    const { network, containerId, ifname } = this.#id;
    const asked = { network, containerId, ifname, ...wanted, owner, pluginDirs, ...defined({ request }) };
    const place = { ...identifyNetns(wanted.netns), ...hostCookie(), boot: bootId(env), cacheDir };
    const intent = { ...asked, ...place };
    this.#adding = { intent, over };
    if (this.#call.stateDir === undefined || this.#lock === undefined) return;
    const begun = { ...intent, runner: this.#lock.runner };
    const { stateDir } = this.#call;
    this.#record = { ...begunAdd(begun, cacheFileOf(cacheDir, intent)), stateDir, isNoted: false };
  }

  /** A DEL begins, of something known. @throws CniError 5: that was not written, and neither will be how it ends */
  beginDel(): void {
    if (this.#record === undefined || this.#lock === undefined) return;
    const { attempts, runners, cacheDir } = this.#record;
    // An operation that died may have left a temporary file.
    if (runners.length) sweepCache(cacheDir);
    this.#note({ phase: attempts > 0 ? 'failed' : 'deleting', runners: [...runners, this.#lock.runner] });
    this.#hasBegun = true;
  }

  /** Plugins are about to change it. @throws CniError 5: that was not written */
  beginChange(change: PendingChange): void {
    const { runner } = this.#right();
    this.#note({ change: { ...change, op: runner.op }, runners: [...this.#known().runners, runner] });
  }

  /**
   * The plugins up to this one are about to be called, and may run before all replies are read.
   * @throws CniError 5: none of them may be called then, because no note would tell how to undo it
   */
  progress(last: number, result?: JsonObject): void {
    const soFar = defined({ result });
    if (this.#hasBegun) this.#note({ segment: last, ...soFar });
    else if (this.#adding?.over === false && this.#record) this.#noteAdd({ ...this.#record, ...soFar }, last);
  }

  #noteAdd(intent: KnownAttachment, last: number): void {
    const { cacheDir, file } = intent;
    this.#record = createNote(this.#right().stateDir, intent, last);
    this.#hasBegun = true;
    try {
      // An entry outlives a DEL that was killed. From now on it would look like that of this ADD.
      if (fileExists(file)) removeEntry(cacheDir, this.#id);
    } catch (error) {
      this.#dropNoteIfPossible();
      throw error;
    }
  }

  /**
   * All plugins succeeded: writes the entry, which settles the ADD or the change. That of another ADD, made while this change ran, stays.
   * @throws CniError 5: it is not committed; 11: nor is an ADD if the path of its namespace leads to another one
   */
  commit(outcome: Partial<Settings> & Pick<Intent, 'result'>): void {
    const stateDir = this.#call.stateDir;
    if (this.#adding) this.#commitAdd(this.#adding, outcome);
    else if (stateDir !== undefined) {
      const record = this.#known();
      const entry = entryOf(
        stateDir,
        { ...record, ...outcome },
        record.change?.op ?? this.#right().runner.op,
      );
      replaceEntry(record.cacheDir, entry, one => this.#isOwn(one));
      this.#settled(outcome);
    }
  }

  #commitAdd({ intent }: BegunAdd, outcome: Partial<Intent>): void {
    const { cacheDir } = intent;
    if (this.#record) refuseReplaced(this.#record);
    if (this.#call.stateDir === undefined || this.#lock === undefined) {
      writeEntry(cacheDir, { ...intent, ...outcome });
      return;
    }
    if (!this.#hasBegun) keepCacheDir(this.#call.stateDir, cacheDir);
    const { runner } = this.#lock;
    writeEntry(cacheDir, entryOf(this.#call.stateDir, { ...intent, runner, ...outcome }));
    // The entry has committed it: a note that stays is over.
    this.#dropNoteIfPossible();
  }

  /** Plugins have undone what had begun. @throws CniError 5: the entry of a failed ADD cannot be removed */
  abandon(): void {
    if (this.#adding === undefined) this.#settled();
    else if (!this.#adding.over) {
      removeEntry(this.#adding.intent.cacheDir, this.#id);
      this.#dropNoteIfPossible();
    }
  }

  /** All plugins of a DEL succeeded: removes the entry, whichever runtime wrote it, then the note. @throws CniError 5 */
  drop(): void {
    removeEntry(this.#callersCacheDir, this.#id);
    this.forget();
  }

  /** Nothing of it is to be deleted: removes its entry, unless another ADD has written that, then the note. @throws CniError 5 */
  forget(): void {
    const { stateDir } = this.#call;
    if (stateDir === undefined) return;
    const record = this.#record;
    if (record === undefined || this.#lock === undefined) {
      dropRecord(stateDir, this.#id);
      return;
    }
    if (record.foreign) removeAside(record.cacheDir, record);
    else if (this.#isOwn(tryEntry(record.cacheDir, record))) removeEntry(record.cacheDir, record);
    this.#settled();
    this.#lock?.forgetDead();
  }

  /** The same with a warning, since it has been made again. @param later evidence, human-readable @throws CniError 5 */
  yieldTo(later: string): void {
    this.#call.onWarning?.(madeAgain(this.#known(), later));
    this.forget();
  }

  /** Some plugins failed: notes them for the next attempt. @throws CniError 5 */
  fail(thrown: readonly unknown[]): void {
    if (!this.#hasBegun) return;
    const write = () =>
      this.leave({
        phase: 'failed',
        attempts: this.#known().attempts + 1,
        lastAttempt: new Date().toISOString(),
        lastErrors: thrown.map(toRecorded),
      });
    // The note of an ADD still says that it did not end, and recovery undoes the same plugins once more.
    if (this.#adding) orTell(undefined, write);
    else write();
  }

  /** Ends, and leaves what is noted to the next operation. @throws CniError 5: others wait for as long as this process lives */
  leave(more: Partial<KnownAttachment> = {}): void {
    const { op } = this.#right().runner;
    this.#note({ ...more, runners: this.#known().runners.filter(one => one.op !== op) });
  }

  /** Writes the entry again with another list. @throws CniError 5: the entry is unchanged */
  restate(source: string): void {
    const record = this.#known();
    writeEntry(record.cacheDir, entryOf(this.#right().stateDir, { ...record, source }));
  }

  /** Another runtime made it, and nothing is noted of it: all but its entry is of now. @param generation of its ADD, if that was noted */
  adopt(one: KnownAttachment, generation: string | undefined): HeldKnown {
    const { env, pluginDirs = [] } = this.#call;
    const { stateDir, runner } = this.#right();
    const place = { ...identifyNetns(one.netns), ...hostCookie(), boot: bootId(env), stateDir, pluginDirs };
    this.#record = { ...one, ...place, runner, ...defined({ generation }) };
    return this as HeldKnown;
  }

  /** Safe to repeat. */
  release(): void {
    this.#lock?.release();
  }

  get #cacheDir(): string {
    return this.#record?.cacheDir ?? this.#callersCacheDir;
  }

  get #callersCacheDir(): string {
    return cacheDirOf(this.#call);
  }

  #right(): { readonly stateDir: string; readonly runner: Runner } {
    const [stateDir, lock] = [this.#call.stateDir, this.#lock];
    if (stateDir !== undefined && lock) return { stateDir, runner: lock.runner };
    throw this.#unwritable('it has no lock');
  }

  #known(): KnownAttachment {
    if (this.#record) return this.#record;
    throw this.#unwritable('nothing is known of it');
  }

  #unwritable(why: string): CniError {
    const { containerId, ifname } = this.#id;
    const what = `Cannot note a change of interface "${ifname}" of container "${containerId}"`;
    return new CniError(ErrorCode.ioFailure, `${what}: ${why}`);
  }

  #isOwn(entry: Entry | undefined): boolean {
    return entry !== undefined && isEntryOf(entry, this.#known());
  }

  #note(more: Partial<KnownAttachment>): void {
    this.#record = writeNote(this.#right().stateDir, { ...this.#known(), ...more });
  }

  #settled(more: Partial<Settings> & Pick<Intent, 'result'> = {}): void {
    const record = this.#known();
    dropNote(this.#right().stateDir, record);
    this.#record = { ...record, ...more, change: undefined, runners: [], isNoted: false };
  }

  #dropNoteIfPossible(): void {
    const stateDir = this.#call.stateDir;
    // A write error must not hide the failure that is being handled, or undo what is committed.
    if (stateDir !== undefined && this.#hasBegun) orTell(undefined, () => dropNote(stateDir, this.#id));
  }
}

/**
 * A container may have ended and its name been given to a new namespace while plugins ran. They opened the path after the note was
 * written, so the entry would name a namespace that the interface is not in, and DEL would not look for it where it is.
 */
function refuseReplaced(record: KnownAttachment): void {
  if (compareNetns(record.netns, record) !== 'other') return;
  throw tryAgainLater(
    `Cannot add container "${record.containerId}": "${record.netns}" was replaced by another namespace while plugins ran; call ADD again`,
  );
}

/** NAME_MAX of linux/limits.h. */
const NAME_BYTES = 255;

/**
 * All three parts of the name of an entry's file may be long and may contain "-": two attachments can have one name, and the entry is all that
 * tells of one.
 */
function refuseUnfitName(id: AttachmentId, cacheDir: string): void {
  const file = cacheFileOf(cacheDir, id);
  const bytes = Buffer.byteLength(basename(file));
  const why =
    bytes > NAME_BYTES
      ? `"${file}" would be its entry, and a file name of ${bytes} bytes is longer than ${NAME_BYTES}; choose a shorter`
      : isOfAnother(file, id)
        ? `"${file}" is the entry of another attachment, whose names give the same file; choose another`
        : undefined;
  if (why === undefined) return;
  throw invalidConfig(
    `Cannot attach interface "${id.ifname}" of container "${id.containerId}" to network "${id.network}": ${why} name for the network or the container`,
  );
}

function toRecorded(thrown: unknown): RecordedError {
  const { code, message, details, plugin } = toCniError(thrown);
  return { code, msg: message, ...defined({ details, plugin: plugin?.type, index: plugin?.index }) };
}

type Environment = Readonly<Record<string, string | undefined>> | undefined;

/** @param one as it was read; a process may be at work on it */
export function pastOf(one: KnownAttachment, env: Environment): Past {
  const [kind, why] = leftOf(one, env);
  const holder = holderOf(one);
  const toDelete = kind === 'elsewhere' || holder ? undefined : why;
  return {
    ...{ kind, why, stands: one.phase === 'attached', holder, toDelete },
    netns: (path = one.netns) => (isOfEarlierBoot(one, env) ? 'gone' : findPlace(path, one)),
    refuseElsewhere: () => kind === 'elsewhere' && refuseElsewhere(one),
  };
}

function findPlace(path: string, one: KnownAttachment): ReturnType<Past['netns']> {
  if (!one.foreign || one.netnsIdentity !== undefined) return compareNetns(path, one);
  // Of another runtime's only the path is known.
  return path !== '' && findNetnsIdentity(path) === undefined ? 'gone' : 'same';
}

function leftOf(record: KnownAttachment, env: Environment): [kind: Past['kind'], why?: string] {
  const { phase, attempts, lastErrors, foreign, change } = record;
  if (isElsewhere(record, env)) return ['elsewhere', ELSEWHERE];
  const isAttached = phase === 'attached';
  // Its runtime deletes an attachment of its own, also after a reboot.
  if (isOfEarlierBoot(record, env) && !(foreign && isAttached)) return ['outlived', EARLIER_BOOT];
  if (isAttached) return [change === undefined ? 'settled' : 'changing'];
  if (phase === 'adding') return [phase, 'its ADD was interrupted'];
  if (phase === 'deleting') return [phase, 'its DEL was interrupted'];
  const times = attempts === 1 ? 'once' : `${attempts} times`;
  return ['left', `its DEL failed ${times}: ${lastErrors.map(({ msg }) => msg).join('; ')}`];
}

/** Why an attachment of an earlier boot is deleted, human-readable. */
export const EARLIER_BOOT = 'it is from an earlier boot of the machine';

const ELSEWHERE = 'it was attached in another network namespace of this machine';

/**
 * Whether its runner worked in another network namespace. Rules, host ends and ports of an attachment are in that one. Plugins that are called
 * in another find nothing there, succeed, and give back an address that the attachment still has. Of an earlier boot no namespace is left, and
 * cookies begin again.
 */
function isElsewhere(record: Pick<KnownAttachment, 'boot' | 'hostCookie'>, env: Environment): boolean {
  if (record.hostCookie === undefined || isOfEarlierBoot(record, env)) return false;
  const { hostCookie: here } = hostCookie();
  return here !== undefined && here !== record.hostCookie;
}

function refuseElsewhere(record: KnownAttachment): void {
  const path = pathsOfNamespaces().find(one => findNetnsCookie(one) === record.hostCookie);
  if (path === undefined) return;
  throw tryAgainLater(
    `Cannot change ${describeAttachment(record)}: ${ELSEWHERE}; run it there (nsenter --net=${path})`,
  );
}

function pathsOfNamespaces(): string[] {
  const mounts = (tryRead('/proc/self/mountinfo') ?? '').split('\n').flatMap(line => {
    const [, , , root = '', point = ''] = line.split(' ');
    return root.startsWith('net:[') ? point : [];
  });
  return [...mounts, ...processIds().map(pid => `/proc/${pid}/ns/net`)];
}
