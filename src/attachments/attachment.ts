// What is known of an attachment, and what have operations or a reboot left of it?
//
// An attachment is made here, and nowhere else, from its entry in libcni's cache (entries.ts), from its note (notes.ts), or from both.

import { readdirSync } from 'node:fs';
import { cacheFileOf } from '../cni/attachment.ts';
import { lockScopeOf } from '../cni/directories.ts';
import { attempt, CniError, ErrorCode } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { isOfEarlierBoot } from '../files/process-stat.ts';
import { tryRead } from '../files/read-file.ts';
import {
  compareNetns,
  findNetnsCookie,
  findNetnsIdentity,
  hostCookie,
  identifyNetns,
} from '../sys/netns-identity.ts';
import { type Entry, type Made, type MadeByUs, renderEntry } from './entries.ts';
import { holderOf, type Runner } from './lock.ts';

/** What an ADD is about to do; or, if that had succeeded before, what a change or a deletion begins with. */
export interface Intent extends Omit<Entry, 'made'>, Omit<MadeByUs, 'op' | 'time' | 'scope'> {
  /** Where its entry is, or will be. */
  readonly cacheDir: string;
  /** Another runtime made the attachment, and deletes it. Who made it, when and how is not known then. */
  readonly foreign?: true | undefined;
  /** Of such a one that is being changed: what the first plugin of its ADD has noted (generation.ts). */
  readonly generation?: string;
  /** The ADD that made it, or begins to. */
  readonly runner: Runner;
}

/** What an attachment was configured with, as far as it can be changed while the container runs. */
export type Settings = Pick<Intent, 'capabilityArgs' | 'source'>;

/** A change of a running attachment that has begun. */
export interface PendingChange {
  readonly to: Settings;
  /** Indexes of the plugins that are called, which may have changed their part. */
  readonly plugins: readonly number[];
}

/** A failure as a note keeps it. */
export interface RecordedError {
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
  /** Type and index of the plugin that failed, if one did. */
  readonly link?: string;
  readonly index?: number;
}

/** What a note says. A settled attachment is `attached`, and has nothing of the rest. */
interface Progress {
  /**
   * `adding`: an ADD has begun and not ended. `attached`: it succeeded. `deleting`: a DEL has begun. `failed`: a DEL, or
   * the undo of a failed ADD, did not succeed and waits for its next attempt.
   */
  readonly phase: 'adding' | 'attached' | 'deleting' | 'failed';
  /** Whether the ADD succeeded, regardless of later operations. */
  readonly added: boolean;
  /** Index of the last plugin of an unfinished ADD that may have been called; -1 for none. */
  readonly segment: number;
  /** Operations that have begun and not reported their end, oldest first. */
  readonly runners: readonly Runner[];
  /** A change that has begun and neither succeeded nor been undone: the kernel may have either settings, or a part of each. */
  readonly change: (PendingChange & { readonly op: string }) | undefined;
  /** Number of failed DELs. */
  readonly attempts: number;
  readonly lastAttempt: string | undefined;
  readonly lastErrors: readonly RecordedError[];
}

/**
 * An attachment with all that files say of it: what its ADD was called with and gave, who made it and where, and what of it is unfinished.
 * {@link pastOf} says what follows from that now.
 */
export interface KnownAttachment extends Intent, Progress {
  /** The note, if there is one; else the entry. */
  readonly file: string;
  /** Whether it was read from a note. */
  readonly isNoted: boolean;
  /** The journal that has it; undefined if another runtime made it, and nothing is unfinished of it but a change. */
  readonly stateDir?: string | undefined;
  /** libcni's entry of it; undefined if there is none, or if it cannot be used. */
  readonly entry?: Entry | undefined;
}

const NOTHING_UNFINISHED: Progress & Pick<KnownAttachment, 'isNoted'> = {
  ...{ isNoted: false, phase: 'attached', added: true, segment: -1, runners: [], change: undefined },
  ...{ attempts: 0, lastAttempt: undefined, lastErrors: [] },
};

/**
 * A settled attachment, always the same object for an entry: the watch lists the same again and again.
 * @param journals whose attachments are ours; that of any other counts as another runtime's
 */
export function ofEntry(entry: Entry, cacheDir: string, journals: readonly string[]): KnownAttachment {
  const { made, ...known } = entry;
  const isOurs = (stateDir: string) => made?.op !== undefined && made.scope === lockScopeOf(stateDir);
  const stateDir = journals.find(isOurs);
  const before = settled.get(entry);
  if (before && before.stateDir === stateDir) return before;
  const ours = (stateDir === undefined ? {} : made) as MadeByUs & Made;
  const { op = '', time = '', scope: _, change: __, ...by } = ours;
  const whose = stateDir === undefined ? { foreign: true as const } : { stateDir };
  const one: KnownAttachment = {
    ...{ ...known, netnsIdentity: undefined, boot: '', owner: '', pluginDirs: [], executables: [] },
    ...{ ...NOTHING_UNFINISHED, ...by, ...whose, cacheDir, entry },
    runner: { pid: 0, start: '', pidns: '', op, time },
    // Its content may name an attachment that no file can be of.
    file: attempt(() => cacheFileOf(cacheDir, entry)) ?? '',
  };
  settled.set(entry, one);
  return one;
}

const settled = new WeakMap<Entry, KnownAttachment>();

/** The entry that an attachment of a journal stands for. @param change the operation of its last change */
export function entryOf(stateDir: string, intent: Intent, change?: string): Entry {
  const { network, containerId, ifname, netns, args, capabilityArgs, source, result } = intent;
  const known = { network, containerId, ifname, netns, args, capabilityArgs, source, result };
  const changed = defined({ change });
  if (intent.foreign) return change === undefined ? known : { ...known, made: changed };
  const { boot, netnsIdentity, netnsCookie, hostCookie, owner, request, pluginDirs, executables } = intent;
  const { op, time } = intent.runner;
  const where = { boot, netnsIdentity, ...defined({ netnsCookie, hostCookie }) };
  const by = { owner, ...defined({ request }), pluginDirs, executables };
  return { ...known, made: { op, time, ...where, ...by, scope: lockScopeOf(stateDir), ...changed } };
}

/** An ADD that has begun, before its first plugin. */
export function begunAdd(intent: Intent, file: string): KnownAttachment {
  const begun = { phase: 'adding', added: false, runners: [intent.runner], isNoted: true } as const;
  return { ...intent, ...NOTHING_UNFINISHED, ...begun, file };
}

/** An attachment of another runtime, for a change of it: everything but its entry is of now. */
export function adopted(
  one: KnownAttachment,
  now: Pick<KnownAttachment, 'stateDir' | 'pluginDirs' | 'generation' | 'boot' | 'runner'>,
): KnownAttachment {
  return { ...one, ...identifyNetns(one.netns), ...hostCookie(), ...now };
}

/** Whether an entry is of the same ADD. An unfinished ADD has none: one that is there is the outcome, or a later ADD's. */
export function isEntryOf({ made, ...entry }: Entry, one: KnownAttachment): boolean {
  if (!one.added) return false;
  if (!one.foreign) return made?.op === one.runner.op;
  return made?.op === undefined && renderEntry(entry) === renderEntry({ ...one, made: undefined });
}

/** Text that differs between an attachment and a later one of the same name: the ADD of ours, and its entry. */
export function lifeOf({ foreign, runner, entry }: KnownAttachment): string {
  // The runner of another runtime's is that of a change.
  return lifeIn(entry, foreign ? '' : runner.op);
}

/** The same of one of which only the entry is known. */
export function lifeIn(entry: Entry | undefined, op = ''): string {
  return `${op} ${entry ? renderEntry(entry) : ''}`;
}

/** Index of the last plugin that may have begun to work: recovery has to undo all up to it. */
export function lastBegun({ added, segment }: KnownAttachment, plugins: number): number {
  return added ? plugins - 1 : Math.min(segment, plugins - 1);
}

type Environment = Readonly<Record<string, string | undefined>> | undefined;

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
  const { network, containerId, ifname } = record;
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot change interface "${ifname}" of container "${containerId}" on network "${network}": ${ELSEWHERE}; run it there (nsenter --net=${path})`,
  );
}

/** One path of each network namespace that a process or a mount has. */
function pathsOfNamespaces(): string[] {
  const mounts = (tryRead('/proc/self/mountinfo') ?? '').split('\n').flatMap(line => {
    const [, , , root = '', point = ''] = line.split(' ');
    return root.startsWith('net:[') ? point : [];
  });
  const processes = readdirSync('/proc').filter(name => /^\d+$/.test(name));
  return [...mounts, ...processes.map(pid => `/proc/${pid}/ns/net`)];
}
