// How is a lease kept on disk, and taken up again?

import type * as z from 'zod/mini';
import { type AttachmentId, digestOf } from '../../src/cni/attachment.ts';
import { stateDir } from '../../src/cni/directories.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import {
  bootClock,
  findUpkeep,
  identityOf,
  isStillSame,
  listUpkeep,
  putUpkeep,
  removeUpkeep,
  type UpkeepNote,
  type UpkeepOwner,
  upkeepLockOf,
} from '../../src/node/upkeep/note.ts';
import type { Call } from '../../src/plugin/define.ts';
import { withPluginLock } from '../../src/plugin/lock.ts';
import { stageOf, type Times } from './plan.ts';

/** RFC 4361, section 6.1: the type of an identifier that consists of an IAID and a DUID. */
const NODE_SPECIFIC = 255;
/** RFC 6355: a DUID made from a UUID. */
const DUID_UUID = [0, 4];

/** Who a client is to every DHCPv6 server. */
export interface Identity {
  readonly duid: Uint8Array;
  /** 4 bytes. */
  readonly iaid: Uint8Array;
}

/** Names the attachment's addresses among those of its DUID: 4 bytes. */
export function iaidOf({ network, ifname }: AttachmentId): Uint8Array {
  return Uint8Array.from(Buffer.from(digestOf(`${network}/${ifname}`).slice(-8), 'hex'));
}

/** Names the attachment to every DHCPv6 server: 18 bytes, the same for each of its ADDs. */
export function duidOf({ network, containerId, ifname }: AttachmentId): Uint8Array {
  const uuid = Buffer.from(digestOf(`${containerId}/${network}/${ifname}`), 'hex');
  return Uint8Array.from([...DUID_UUID, ...uuid]);
}

/**
 * The client identifier: 23 bytes, the same for each ADD of the attachment, so that a container which is started again is given
 * its former address, and a lease that was lost with a crash is found again. The reference sends the names themselves, which
 * some servers find too long.
 */
export function clientIdOf(attachment: AttachmentId): Uint8Array {
  return Uint8Array.from([NODE_SPECIFIC, ...iaidOf(attachment), ...duidOf(attachment)]);
}

/** Name of the directory of leases. */
const PLUGIN = 'dhcp';
/** The part of the notes that are about IPv6. */
export const IPV6_PART = '6';

/** A kind of lease: each has a record of its own, and is visited at times of its own. */
export interface LeaseKind<S> {
  /** Tells its records from those of others; absent for IPv4. */
  readonly part?: string;
  readonly schema: z.ZodMiniType<S>;
}

/** What leases of every kind have. */
export interface CommonState {
  readonly lease: Times & { readonly address: string };
  /** The lease is over, and its address was taken from the interface. */
  readonly withdrawn?: boolean | undefined;
  /** The address that ADD reported, if the interface has another one since. */
  readonly reported?: string | undefined;
  /** The interface has not been seen with the address yet: ADD, or the plugin that called it, may still be at work. */
  readonly unseen?: boolean | undefined;
}

/** A lease of an attachment, as noted. */
export interface KeptLease<S> {
  readonly note: UpkeepNote;
  readonly state: S;
}

/** The attachment that a call is about. */
export function attachmentOf({ network, env }: Call): AttachmentId {
  return { network, containerId: env.containerId, ifname: env.ifname };
}

/** The record of the call's attachment; undefined if there is none that can be read. */
export function findRecord<S>(call: Call, kind: LeaseKind<S>): KeptLease<S> | undefined {
  const note = findUpkeep(stateDir(call.environment), PLUGIN, ownerOf(call, kind));
  return note && recordOf(kind, note);
}

/** Whether the attachment has a record of the part; cheap, so that code for it is loaded only if there is one. */
export function hasRecord(call: Call, part: string): boolean {
  const owner = { ...attachmentOf(call), part };
  return findUpkeep(stateDir(call.environment), PLUGIN, owner) !== undefined;
}

/** The same for all attachments of the network. */
export function hasRecords(call: Call, part: string): boolean {
  return listUpkeep(stateDir(call.environment), PLUGIN, call.network).some(note => note.part === part);
}

/** The records of the call's network. */
export function listRecords<S>(call: Call, kind: LeaseKind<S>): KeptLease<S>[] {
  return listUpkeep(stateDir(call.environment), PLUGIN, call.network)
    .filter(({ part }) => part === kind.part)
    .flatMap(note => recordOf(kind, note) ?? []);
}

/**
 * A new record of the call's attachment, due at a time of the boot's clock.
 * @param stdin the request by which the plugin is called again
 */
export function newRecord<S>(
  call: Call,
  kind: LeaseKind<S>,
  state: S,
  dueAt: number | undefined,
  stdin = call.requestText,
): KeptLease<S> {
  const { env, environment } = call;
  const names = ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME', 'CNI_PATH', 'CNI_ARGS'] as const;
  const note = {
    ...ownerOf(call, kind),
    ...identityOf(environment, attachmentOf(call), env.netns),
    id: crypto.randomUUID(),
    ...(dueAt === undefined ? {} : { dueAt }),
    call: {
      env: Object.fromEntries(names.flatMap(name => (environment[name] ? [[name, environment[name]]] : []))),
      stdin,
    },
    state,
  };
  return { note, state };
}

/** Writes a record, whatever was there before. @throws CniError 5 or 11 */
export function putRecord<S>(call: Call, { note, state }: KeptLease<S>): void {
  const dir = stateDir(call.environment);
  locked(call, () => putUpkeep(dir, PLUGIN, { ...note, state }));
}

/**
 * Writes the next state of a record, unless DEL has removed it, or another ADD has replaced it, since it was read.
 * @returns whether it was written
 */
export function updateRecord<S>(
  call: Call,
  { note }: KeptLease<S>,
  state: S,
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
export function dropRecord(call: Call, { note }: Pick<KeptLease<unknown>, 'note'>): void {
  const dir = stateDir(call.environment);
  locked(call, () => {
    if (findUpkeep(dir, PLUGIN, note)?.id === note.id) removeUpkeep(dir, PLUGIN, note);
  });
}

/** The interface of a lease, if this is still the attachment, in the namespace that ADD saw. */
export function findInterface(call: Call, { note }: Pick<KeptLease<unknown>, 'note'>): Link | undefined {
  const now = identityOf(call.environment, attachmentOf(call), call.env.netns);
  return isStillSame(note, now) ? findLink(call.container, call.env.ifname) : undefined;
}

function ownerOf(call: Call, { part }: Pick<LeaseKind<unknown>, 'part'>): UpkeepOwner {
  return { ...attachmentOf(call), ...(part === undefined ? {} : { part }) };
}

function recordOf<S>({ schema }: LeaseKind<S>, note: UpkeepNote): KeptLease<S> | undefined {
  const { success, data } = schema.safeParse(note.state);
  return success ? { note, state: data } : undefined;
}

function locked<T>(call: Call, work: () => T): T {
  const path = upkeepLockOf(stateDir(call.environment), PLUGIN, call.network);
  return withPluginLock(path, work);
}

/**
 * @param what `a lease`
 * @param reported addresses of the result with their prefixes; undefined if there is no result
 * @param addressOf the address of the lease, as a result has it
 * @throws Error when the attachment has no lease, or not the one that ADD reported
 */
export function checkLease<S extends CommonState>(
  call: Call,
  kind: LeaseKind<S>,
  what: string,
  reported: readonly string[] | undefined,
  addressOf: (state: S) => string,
): void {
  const record = findRecord(call, kind);
  if (record === undefined)
    throw new Error(
      `Cannot find ${what} of "${call.env.ifname}" in "${stateDir(call.environment)}"; run DEL and ADD`,
    );
  const { state } = record;
  const { address } = state.lease;
  const now = identityOf(call.environment, attachmentOf(call), call.env.netns);
  if (!isStillSame(record.note, now))
    throw new Error(
      `Cannot confirm the lease of ${address}: it is of an earlier attachment of that name; run DEL and ADD`,
    );
  if (state.withdrawn || stageOf(state.lease, bootClock()) === 'expired')
    throw new Error(
      `Cannot confirm the lease of ${address}: it has ended, and no server has granted another`,
    );
  if (reported && !reported.includes(addressOf(state)))
    throw new Error(
      `Cannot confirm the lease of ${state.reported ?? reported.join(', ')}: the server has replaced it by ${address}; run DEL and ADD`,
    );
}
