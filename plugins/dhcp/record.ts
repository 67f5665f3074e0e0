// How is a lease kept on disk, and taken up again?
import * as z from 'zod/mini';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { stateDir } from '../../src/cni/directories.ts';
import type { Call } from '../../src/plugin/define.ts';
import { withPluginLock } from '../../src/plugin/lock.ts';
import { identityOf } from '../../src/upkeep/identity.ts';
import {
  findUpkeep,
  listUpkeep,
  putUpkeep,
  removeUpkeep,
  type UpkeepNote,
  upkeepLockOf,
} from '../../src/upkeep/note.ts';
import { Lease } from './lease.ts';

/** Name of the directory of leases. */
const PLUGIN = 'dhcp';
/** Holders of the lock read a file and write one. */
const LOCK_DEADLINE_MS = 10_000;

const LeaseState = z.object({
  lease: Lease,
  /** Value of option 61, in hexadecimal digits. */
  clientId: z.string(),
  /** The lease is over, and its address was taken from the interface. */
  withdrawn: z.optional(z.boolean()),
  /** The address that ADD reported, if the interface has another one since. */
  reported: z.optional(z.string()),
});
export type LeaseState = z.output<typeof LeaseState>;

/** The client identifier that a lease is for. */
export function clientIdIn({ clientId }: LeaseState): Uint8Array {
  return Uint8Array.from(Buffer.from(clientId, 'hex'));
}

/** A lease of an attachment, as noted. */
export interface LeaseRecord {
  readonly note: UpkeepNote;
  readonly state: LeaseState;
}

/** The attachment that a call is about. */
export function attachmentOf({ network, env }: Call): AttachmentId {
  return { network, containerId: env.containerId, ifname: env.ifname };
}

/** The record of the call's attachment; undefined if there is none that can be read. */
export function findRecord(call: Call): LeaseRecord | undefined {
  const note = findUpkeep(stateDir(call.environment), PLUGIN, attachmentOf(call));
  return note && recordOf(note);
}

/** The records of the call's network. */
export function listRecords(call: Call): LeaseRecord[] {
  return listUpkeep(stateDir(call.environment), PLUGIN, call.network).flatMap(note => recordOf(note) ?? []);
}

/** A new record of the call's attachment, due at a time of the boot's clock. */
export function newRecord(call: Call, state: LeaseState, dueAt: number | undefined): LeaseRecord {
  const { env, environment, requestText } = call;
  const names = ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME', 'CNI_PATH', 'CNI_ARGS'] as const;
  const note = {
    ...attachmentOf(call),
    ...identityOf(environment, attachmentOf(call), env.netns),
    id: crypto.randomUUID(),
    ...(dueAt === undefined ? {} : { dueAt }),
    call: {
      env: Object.fromEntries(names.flatMap(name => (environment[name] ? [[name, environment[name]]] : []))),
      stdin: requestText,
    },
    state,
  };
  return { note, state };
}

/** Writes a record, whatever was there before. @throws CniError 5 or 11 */
export function putRecord(call: Call, { note, state }: LeaseRecord): void {
  const dir = stateDir(call.environment);
  locked(call, () => putUpkeep(dir, PLUGIN, { ...note, state }));
}

/**
 * Writes the next state of a record, unless DEL has removed it, or another ADD has replaced it, since it was read.
 * @returns whether it was written
 */
export function updateRecord(
  call: Call,
  { note }: LeaseRecord,
  state: LeaseState,
  dueAt: number | undefined,
): boolean {
  const dir = stateDir(call.environment);
  return locked(call, () => {
    if (findUpkeep(dir, PLUGIN, note)?.id !== note.id) return false;
    const { dueAt: _, ...rest } = note;
    putUpkeep(dir, PLUGIN, { ...rest, ...(dueAt === undefined ? {} : { dueAt }), state });
    return true;
  });
}

/** Removes a record, unless another ADD has replaced it. A missing one is ignored. @throws CniError 5 or 11 */
export function dropRecord(call: Call, { note }: LeaseRecord): void {
  const dir = stateDir(call.environment);
  locked(call, () => {
    if (findUpkeep(dir, PLUGIN, note)?.id === note.id) removeUpkeep(dir, PLUGIN, note);
  });
}

function recordOf(note: UpkeepNote): LeaseRecord | undefined {
  const { success, data } = LeaseState.safeParse(note.state);
  return success ? { note, state: data } : undefined;
}

function locked<T>(call: Call, work: () => T): T {
  const path = upkeepLockOf(stateDir(call.environment), PLUGIN, call.network);
  return withPluginLock(path, work, LOCK_DEADLINE_MS);
}
