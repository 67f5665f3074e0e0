// Who is a client to servers, and how is its lease noted on disk, given back, and renewed when the daemon calls?

import * as z from 'zod/mini';
import { attachmentOf } from '../../src/attach/owner.ts';
import { awaitTraffic } from '../../src/attach/ready.ts';
import { type AttachmentId, digestOf } from '../../src/cni/attachment.ts';
import { stateDir } from '../../src/cni/directories.ts';
import { describeError, tryAgainLater } from '../../src/cni/errors.ts';
import { hostName } from '../../src/cni/node-name.ts';
import { thisMachine } from '../../src/files/machine.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { findCidr, renderCidr, renderIp } from '../../src/net/ip.ts';
import { type Address, listAddresses, removeAddress } from '../../src/netlink/rtnl/addr.ts';
import { findLink, IFF_UP, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
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
import { tryAll } from '../../src/plugin/steps.ts';
import { closeNetns, findNetns, inNetns, type Netns } from '../../src/sys/netns.ts';
import type { ClientInterface, LeaseQuestion, Refusals, Response } from './conversation.ts';

/** What leases of both families have, as they are kept on disk. */
export const CommonLease = z.object({
  /** With the prefix length of the subnet, if servers of the family know it. */
  address: z.string(),
  nameservers: z.array(z.string()),
  search: z.array(z.string()),
  /** Address of an IPv4 server; DUID of an IPv6 one, in hexadecimal digits. */
  server: z.string(),
  /** Seconds since the boot when the granted request was sent; what follows counts from there. */
  since: z.number(),
  /** Seconds for which the address is valid; absent for a lease without end. */
  duration: z.optional(z.number()),
  /** Seconds after which it is renewed (T1), and after which any server is asked (T2). */
  renewAfter: z.optional(z.number()),
  rebindAfter: z.optional(z.number()),
});
type CommonLease = z.output<typeof CommonLease>;

/** A shorter lease would keep the node busy with nothing else. */
export const MIN_DURATION_S = 10;

export const CommonState = z.object({
  /** The lease is over, and its address was taken from the interface. */
  withdrawn: z.optional(z.boolean()),
  /** The address that ADD reported, if the interface has another one since. */
  reported: z.optional(z.string()),
  /** The interface has not been seen with the address yet: ADD, or the plugin that called it, may still be at work. */
  unseen: z.optional(z.boolean()),
  /** The routes that ADD reported, if the server has named others since. */
  reportedRoutes: z.optional(z.array(z.string())),
  /** Destinations that the interface had no route to when its address was withdrawn: it gets none with the next one either. */
  without: z.optional(z.array(z.string())),
});
type LeaseState = z.output<typeof CommonState> & {
  readonly lease: CommonLease;
  /** The lease before, whose address and routes the interface may still have: this one was noted, and the process may have died since. */
  readonly unapplied?: CommonLease | undefined;
};

/** Leases of a family: each has a record of its own, and is visited at times of its own. */
export interface LeaseFamily<S extends LeaseState> {
  readonly family: 4 | 6;
  readonly schema: z.ZodMiniType<S>;
  /** The address of a lease, as a result has it. */
  cidrOf(state: S): string;
  routesOf(state: S): readonly string[];
  /**
   * Tells the server that the address is free.
   * @returns false if the server should have acknowledged that, and did not
   * @throws SystemError when the interface is gone or down
   */
  release(place: OpenInterface, state: S): Promise<boolean>;
}

/** What tells messages about IPv6 from those about IPv4. */
function wordOf({ family }: Pick<LeaseFamily<never>, 'family'>): string {
  return family === 6 ? 'IPv6 ' : '';
}

/** An interface that leases are obtained and released through. */
export interface OpenInterface extends ClientInterface {
  /** rtnetlink in its namespace. */
  readonly socket: NetlinkSocket;
  /** It was down until now. */
  readonly isFresh?: boolean;
}

/** Pause between attempts while a server does not answer (RFC 2131, 4.4.5). */
const RETRY_S = 60;
/** However short a lease, its server is left in peace for this long. */
const MIN_PAUSE_S = 2;

/** What a lease needs at a moment of its life (RFC 2131, 4.4.5). */
type Stage = 'bound' | 'renewing' | 'rebinding' | 'expired';

type Times = Pick<CommonLease, 'since' | 'duration' | 'renewAfter' | 'rebindAfter'>;

/** The stage that a lease is in, by the clock of the boot. */
export function stageOf({ since, duration, renewAfter, rebindAfter }: Times, now: number): Stage {
  const age = now - since;
  if (duration === undefined || age < (renewAfter ?? duration)) return 'bound';
  if (age >= duration) return 'expired';
  return age < (rebindAfter ?? duration) ? 'renewing' : 'rebinding';
}

/**
 * When the lease needs attention next, in seconds since the boot; undefined for one without end. While nothing answers, half of
 * the time that is left until the next stage passes between attempts, but at least a minute if there is one.
 */
export function dueAt(lease: Times, now: number): number | undefined {
  const { since, duration, renewAfter = 0, rebindAfter = 0 } = lease;
  if (duration === undefined) return undefined;
  const stage = stageOf(lease, now);
  if (stage === 'bound') return Math.max(since + renewAfter, now + MIN_PAUSE_S);
  if (stage === 'expired') return now + RETRY_S;
  const end = since + (stage === 'renewing' ? rebindAfter : duration);
  return Math.max(now + MIN_PAUSE_S, Math.min(end, now + Math.max(RETRY_S, (end - now) / 2)));
}

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

/**
 * Names the attachment to every DHCPv6 server: 18 bytes, the same for each of its ADDs. Container ids may repeat on the other machines of
 * a link, as those do that are derived from the path of a namespace, and machines may be copies of one disk.
 */
export function duidOf(
  { network, containerId, ifname }: AttachmentId,
  machine = `${thisMachine()} ${hostName()}`,
): Uint8Array {
  const uuid = Buffer.from(digestOf(`${machine}/${containerId}/${network}/${ifname}`), 'hex');
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

const PLUGIN = 'dhcp';
/** The part of the notes that are about IPv6. */
const IPV6_PART = '6';

interface KeptLease<S> {
  readonly note: UpkeepNote;
  readonly state: S;
}

function findNote(call: Call, leases: Pick<LeaseFamily<never>, 'family'>): UpkeepNote | undefined {
  return findUpkeep(stateDir(call.environment), PLUGIN, ownerOf(call, leases));
}

/** The record of the call's attachment; undefined if there is none that can be read. */
function findRecord<S extends LeaseState>(call: Call, leases: LeaseFamily<S>): KeptLease<S> | undefined {
  const note = findNote(call, leases);
  return note && recordOf(leases, note);
}

/** Whether the attachment has a record of an IPv6 lease; cheap, so that code for it is loaded only if there is one. */
export function hasIpv6Record(call: Call): boolean {
  return findNote(call, { family: 6 }) !== undefined;
}

/** The same for all attachments of the network. */
export function hasIpv6Records(call: Call): boolean {
  return listUpkeep(stateDir(call.environment), PLUGIN, call.network).some(({ part }) => part === IPV6_PART);
}

/**
 * Obtains a lease, and asks for the address that the attachment had before.
 * @throws CniError 11 when there is no lease in time
 */
export async function requireLease<S extends LeaseState>(
  call: Call,
  leases: LeaseFamily<S>,
  { link, timeoutS }: { readonly link: Link; readonly timeoutS: number },
  acquire: LeaseKeeper<S['lease']>['acquire'],
): Promise<S['lease']> {
  const refusals: Refusals = [];
  const [former] = findRecord(call, leases)?.state.lease.address.split('/') ?? [];
  const lease = await acquire(former, performance.now() + timeoutS * 1000, refusals);
  if (lease) return lease;
  const heard = refusals.join('; ') || `no DHCP${leases.family === 6 ? 'v6' : ''} server answered`;
  throw tryAgainLater(
    `Cannot obtain an ${wordOf(leases)}address for "${link.name}" within ${timeoutS} s: ${heard}`,
    {
      details:
        'the server must be on the network of the interface, have a free address, and be let through by packet filters; a port of a bridge with spanning tree passes nothing for twice its forward delay',
    },
  );
}

export function releaseOnFailure<S extends LeaseState>(
  call: Call,
  leases: LeaseFamily<S>,
  place: OpenInterface,
  state: S,
): void {
  call.onFailure(`release the ${wordOf(leases)}lease`, async () => {
    await leases.release(place, state);
  });
}

/**
 * Notes the lease of the call's attachment, whatever was noted before.
 * @param due when the daemon calls, in seconds since the boot
 * @param stdin the request by which the plugin is called again
 * @throws CniError 5 or 11
 */
export function noteLease<S extends LeaseState>(
  call: Call,
  leases: LeaseFamily<S>,
  state: S,
  due: number | undefined,
  stdin = call.requestText,
): void {
  const { env, environment } = call;
  const names = ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME', 'CNI_PATH', 'CNI_ARGS'] as const;
  const note = {
    ...ownerOf(call, leases),
    ...identityOf(environment, attachmentOf(call), env.netns),
    id: crypto.randomUUID(),
    ...timesOf(state, due),
    call: {
      env: Object.fromEntries(names.flatMap(name => (environment[name] ? [[name, environment[name]]] : []))),
      stdin,
    },
    state,
  };
  locked(call, () => putUpkeep(stateDir(environment), PLUGIN, note));
  call.onFailure(`remove the record of the ${wordOf(leases)}lease`, () => dropRecord(call, { note }));
}

/**
 * Writes the next state of a record, unless DEL has removed it, or another ADD has replaced it, since it was read.
 * @returns whether it was written
 */
function updateRecord<S extends LeaseState>(
  call: Call,
  { note }: KeptLease<S>,
  state: S,
  due: number | undefined,
): boolean {
  const dir = stateDir(call.environment);
  return locked(call, () => {
    if (findUpkeep(dir, PLUGIN, note)?.id !== note.id) return false;
    const { dueAt: _, urgentAt: __, ...rest } = note;
    putUpkeep(dir, PLUGIN, { ...rest, ...timesOf(state, due), state });
    return true;
  });
}

/** When the daemon calls. An address whose lease has ended leaves its interface, whatever others wait for a server. */
function timesOf(
  { lease: { since, duration }, withdrawn }: LeaseState,
  due: number | undefined,
): Pick<UpkeepNote, 'dueAt' | 'urgentAt'> {
  if (due === undefined) return {};
  return { dueAt: due, ...(withdrawn || duration === undefined ? {} : { urgentAt: since + duration }) };
}

/** Removes a record, unless another ADD has replaced it. A missing one is ignored. @throws CniError 5 or 11 */
function dropRecord(call: Call, { note }: Pick<KeptLease<unknown>, 'note'>): void {
  const dir = stateDir(call.environment);
  locked(call, () => {
    if (findUpkeep(dir, PLUGIN, note)?.id === note.id) removeUpkeep(dir, PLUGIN, note);
  });
}

/** The interface of a lease, if this is still the attachment, in the namespace that ADD saw. */
function findInterface(call: Call, { note }: Pick<KeptLease<unknown>, 'note'>): Link | undefined {
  const now = identityOf(call.environment, attachmentOf(call), call.env.netns);
  return isStillSame(note, now) ? findLink(call.container, call.env.ifname) : undefined;
}

function ownerOf(call: Call, { family }: Pick<LeaseFamily<never>, 'family'>): UpkeepOwner {
  return { ...attachmentOf(call), ...(family === 6 ? { part: IPV6_PART } : {}) };
}

function recordOf<S extends LeaseState>(
  { schema }: LeaseFamily<S>,
  note: UpkeepNote,
): KeptLease<S> | undefined {
  const { success, data } = schema.safeParse(note.state);
  return success ? { note, state: data } : undefined;
}

function locked<T>(call: Call, work: () => T): T {
  const path = upkeepLockOf(stateDir(call.environment), PLUGIN, call.network);
  return withPluginLock(path, work);
}

/** @throws Error when the attachment has no lease, or not the one that ADD reported */
export function checkLease<S extends LeaseState>(call: Call, leases: LeaseFamily<S>): void {
  const record = findRecord(call, leases);
  if (record === undefined)
    throw new Error(
      `Cannot find ${leases.family === 6 ? 'an IPv6' : 'a'} lease of "${call.env.ifname}" in "${stateDir(call.environment)}"; run DEL and ADD`,
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
  const reported = (call.prevResult?.ips ?? [])
    .flatMap(one => findCidr(one.address) ?? [])
    .filter(({ ip }) => ip.family === leases.family)
    .map(renderCidr);
  if (call.prevResult && !reported.includes(leases.cidrOf(state)))
    throw new Error(
      `Cannot confirm the lease of ${state.reported ?? reported.join(', ')}: the server has replaced it by ${address}; run DEL and ADD`,
    );
  if (state.reportedRoutes)
    throw new Error(
      `Cannot confirm the routes of ${address}: the server has replaced ${listed(state.reportedRoutes)} by ${listed(leases.routesOf(state))}; run DEL and ADD`,
    );
}

function listed(routes: readonly string[]): string {
  return routes.join(', ') || 'none';
}

/** GC spares leases this young, in seconds, if no note says when their ADD began: that ADD may still be running. */
const UNNOTED_ADD_S = 60;

/** Releases and forgets the lease of the call's attachment, if it has one. */
export async function returnLease<S extends LeaseState>(call: Call, leases: LeaseFamily<S>): Promise<void> {
  const note = findNote(call, leases);
  if (note === undefined) return;
  const record = recordOf(leases, note);
  const netns = call.findContainerNetns();
  if (record && netns) await giveBack(call, leases, record, { netns, path: call.env.netns });
  dropRecord(call, { note });
}

/** The same for leases of the network whose attachments GC does not keep. */
export async function collectLeases<S extends LeaseState>(call: Call, leases: LeaseFamily<S>): Promise<void> {
  const { kept } = call;
  if (kept === undefined) return;
  const { part } = ownerOf(call, leases);
  const notes = listUpkeep(stateDir(call.environment), PLUGIN, call.network);
  const now = bootClock();
  const stale = notes.filter(note => {
    const since = recordOf(leases, note)?.state.lease.since ?? 0;
    const isNew = note.boot === bootId(call.environment) && now - since < UNNOTED_ADD_S;
    return note.part === part && !kept.has(note) && (kept.isNoted(note) || !isNew);
  });
  await tryAll(stale.map(note => () => collect(call, leases, note)));
}

async function collect<S extends LeaseState>(
  call: Call,
  leases: LeaseFamily<S>,
  note: UpkeepNote,
): Promise<void> {
  const record = recordOf(leases, note);
  const what = record ? `Releasing ${record.state.lease.address}` : 'Removing the unknown record';
  call.log.info(`${what} of stale attachment ${note.containerId}/${note.ifname}`);
  const path = note.call.env.CNI_NETNS ?? '';
  const netns = record && findNetns(path);
  try {
    if (netns) await giveBack(call, leases, record, { netns, path });
  } finally {
    if (netns) closeNetns(netns);
  }
  dropRecord(call, { note });
}

/** Releases a lease, if its interface still exists. Best effort: the server forgets the lease in time. */
async function giveBack<S extends LeaseState>(
  call: Call,
  leases: LeaseFamily<S>,
  { note, state }: KeptLease<S>,
  { netns, path }: { netns: Netns; path: string },
): Promise<void> {
  const { lease, withdrawn } = state;
  const now = identityOf(call.environment, note, path);
  const isSame = note.boot === now.boot && note.netnsCookie === now.netnsCookie;
  if (withdrawn || !isSame || stageOf(lease, bootClock()) === 'expired') return;
  const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  try {
    const link = findLink(socket, note.ifname);
    if (link === undefined) {
      call.log.info(`Not releasing ${lease.address}: "${note.ifname}" is gone already`);
      return;
    }
    // An ADD that failed while it brought the interface up again, or the container itself, has left it down.
    const isFresh = !(link.flags & IFF_UP);
    if (isFresh) {
      setLink(socket, link.index, { up: true });
      await awaitTraffic(call.log, [{ socket, link, ips: [] }]);
    }
    if (await leases.release({ netns, link, socket, isFresh }, state)) return;
    call.log.info(`The server did not acknowledge the release of ${lease.address}; it may keep the address`);
  } catch (cause) {
    call.log.warn(
      `Cannot release ${lease.address}: ${describeError(cause)}; the server keeps it until it expires`,
    );
  } finally {
    socket.close();
  }
}

/** A worker waits for the answer to one question; the next attempt comes later. */
const ANSWER_MS = 4_000;
/** A new lease takes two questions, and probing for the address. */
const ACQUIRE_MS = 10_000;
/** How often the interface is looked at for the address that ADD reported, and for how long beyond the time that ADD may ask servers. */
const LOOK_EVERY_S = 3;
const LOOK_FOR_S = 60;

/** How a family asks servers about a lease, and how its interface follows. Moments are in milliseconds of `performance.now()`. */
interface LeaseKeeper<L> {
  ask(about: LeaseQuestion, lease: L, giveUpAt: number): Promise<Response<L>>;
  acquire(former: string | undefined, giveUpAt: number, refusals: Refusals): Promise<L | undefined>;
  /** Destinations of a lease that its interface has no route to. */
  missing(lease: L): string[];
  /**
   * Gives the interface the address of a lease, and what comes with it.
   * @param before the lease that it replaces
   * @param without destinations that it gets no route to
   */
  apply(lease: L, before: L, without: readonly string[]): void;
}

interface Visit<S extends LeaseState> {
  readonly call: Call;
  readonly record: KeptLease<S>;
  readonly leases: LeaseFamily<S>;
  readonly place: OpenInterface;
  readonly keeper: LeaseKeeper<S['lease']>;
  /** The plugin that called ADD may have yet to address the interface. */
  readonly isAwaited?: boolean | undefined;
}

/**
 * Renews the lease of the call's attachment if it is time, or confirms it after a restart. Does nothing in the namespace of
 * another attachment, and nothing if that is gone.
 * @param restarted whether this is the first call since the daemon started
 * @param timeoutS for how long ADD may have asked servers
 * @throws Error when the kernel refuses a change, or the record is of no lease; it is tried again
 */
export async function keepLease<S extends LeaseState>(
  call: Call,
  leases: LeaseFamily<S>,
  { restarted, timeoutS }: { readonly restarted: boolean; readonly timeoutS: number },
  open: (place: OpenInterface, state: S) => LeaseKeeper<S['lease']>,
): Promise<void> {
  const note = findNote(call, leases);
  if (note === undefined) return;
  const record = recordOf(leases, note);
  if (record === undefined)
    throw new Error(
      `Cannot keep the lease of "${note.ifname}": its record in "${stateDir(call.environment)}" is of no lease that this version knows; run DEL and ADD`,
    );
  const { state } = record;
  const { lease } = state;
  const link = findInterface(call, record);
  if (link === undefined) {
    updateRecord(call, record, state, undefined);
    call.log.info(`Not renewing ${lease.address}: the interface that it was for is gone`);
    return;
  }
  const place = { netns: call.containerNetns, link, socket: call.container };
  const isFirstSeen = state.unseen && findAddress(place, lease) !== undefined;
  const isAwaited = state.unseen && !isFirstSeen && bootClock() < lease.since + LOOK_FOR_S + timeoutS;
  if (isAwaited && stageOf(lease, bootClock()) === 'bound') {
    updateRecord(call, record, state, bootClock() + LOOK_EVERY_S);
    return;
  }
  const keeper = open(place, state);
  const visit = { call, record, leases, place, keeper, isAwaited };
  if (state.unapplied) return complete(visit, state.unapplied);
  if (isOver(state)) return void withdraw(visit);
  const response = await askAbout(visit, restarted);
  if (typeof response === 'object') return take(visit, response.lease);
  if (response === undefined && isOver(state)) return void withdraw(visit);
  const stage = stageOf(lease, bootClock());
  if (response !== undefined || stage === 'expired' || state.withdrawn) return replace(visit, response);
  if (stage === 'rebinding')
    call.log.warn(`No server extends the lease of ${lease.address} for "${link.name}", which ends soon`);
  if (isFirstSeen) keeper.apply(lease, lease, []);
  const { unseen: _, ...seen } = state;
  updateRecord(call, record, isAwaited ? state : (seen as S), dueAt(lease, bootClock()));
}

/** The lease's address on the interface. An IPv6 server does not know the prefix length, so there any counts. */
function findAddress({ socket, link }: OpenInterface, { address }: CommonLease): Address | undefined {
  return listAddresses(socket, link.index).find(({ cidr }) =>
    [renderCidr(cidr), renderIp(cidr.ip)].includes(address),
  );
}

/** Takes the address of a lease that is over from the interface; the routes through it go with it. */
function withdrawAddress(place: OpenInterface, lease: CommonLease): void {
  const found = findAddress(place, lease);
  if (found) removeAddress(place.socket, place.link.index, found.cidr);
}

/** Whether the lease has ended, and that is not noted yet. */
function isOver({ lease, withdrawn }: LeaseState): boolean {
  return !withdrawn && stageOf(lease, bootClock()) === 'expired';
}

/**
 * Notes that a lease is over, and takes its address from the interface; the next call asks for another one.
 * @returns the state of a lease that is over; undefined once a DEL or another ADD has come, whose the interface is then
 * @throws CniError 5 or 11 when it cannot be noted; the address is gone nevertheless
 */
function withdraw<S extends LeaseState>(
  { call, record, place, keeper }: Visit<S>,
  why = 'it has expired',
): S | undefined {
  const { lease } = record.state;
  const state = { ...record.state, withdrawn: true, without: keeper.missing(lease) };
  let isOurs = true;
  try {
    // First: without the address, nothing tells which routes another plugin had taken away.
    isOurs = updateRecord(call, record, state, bootClock());
  } finally {
    if (isOurs) {
      withdrawAddress(place, lease);
      call.log.warn(`Removed ${lease.address} from "${place.link.name}": ${why}`);
    }
  }
  return isOurs ? state : undefined;
}

async function askAbout<S extends LeaseState>(
  { record, keeper }: Visit<S>,
  restarted: boolean,
): Promise<Response<S['lease']>> {
  const { lease, withdrawn } = record.state;
  const stage = withdrawn ? 'expired' : stageOf(lease, bootClock());
  if (stage === 'expired' || (stage === 'bound' && !restarted)) return undefined;
  const question = restarted ? 'confirm' : stage === 'renewing' ? 'renew' : 'rebind';
  return keeper.ask(question, lease, performance.now() + ANSWER_MS);
}

/**
 * Obtains another lease. The address of one that a server merely does not know stays until its end: it asks for the same one, and
 * often gets it.
 */
async function replace<S extends LeaseState>(
  visit: Visit<S>,
  response: 'over' | 'unknown' | undefined,
): Promise<void> {
  const { call, record, leases, place, keeper } = visit;
  const { name } = place.link;
  const { lease, withdrawn } = record.state;
  const isUnknown = response === 'unknown';
  // The process that noted it may have died before it took the address away.
  if (withdrawn) withdrawAddress(place, lease);
  const isLeaving = !isUnknown && !withdrawn;
  const state = isLeaving ? withdraw(visit, 'the server has withdrawn it') : record.state;
  if (state === undefined) return;
  const refusals: Refusals = [];
  const former = isUnknown ? lease.address : undefined;
  const fresh = await keeper.acquire(former, performance.now() + ACQUIRE_MS, refusals);
  if (fresh) return take({ ...visit, record: { ...record, state } }, fresh);
  const heard = refusals.join('; ') || 'no server answers';
  if (isUnknown) {
    call.log.warn(`The server no longer knows ${lease.address}, and grants no other: ${heard}`);
    updateRecord(call, record, state, dueAt(lease, bootClock()));
    return;
  }
  call.log.error(`"${name}" has no ${wordOf(leases)}address: ${heard}; trying again in ${RETRY_S} s`);
  updateRecord(call, record, state, bootClock() + RETRY_S);
}

/**
 * Notes a lease, then applies it. If a DEL has released the address since, the new lease is released as well, unless a later ADD of the
 * attachment has begun: that one is the same client to the server, and may have the same address.
 */
async function take<S extends LeaseState>(
  { call, record, leases, place, keeper, isAwaited }: Visit<S>,
  lease: S['lease'],
): Promise<void> {
  const {
    lease: before,
    reported = before.address,
    reportedRoutes = leases.routesOf(record.state),
  } = record.state;
  const { withdrawn: _, unseen: __, without: ___, reportedRoutes: ____, ...client } = record.state;
  // What ADD is about to give the interface must not be there already.
  const isLeftToAdd = isAwaited && lease.address === before.address;
  const next = {
    ...{ ...client, lease },
    ...(reported === lease.address ? {} : { reported }),
    ...(isLeftToAdd ? { unseen: true } : {}),
  } as unknown as S;
  const isRerouted = leases.routesOf(next).join() !== reportedRoutes.join();
  const noted = isRerouted ? { ...next, reportedRoutes } : next;
  const isMoved = findAddress(place, lease) === undefined;
  const { without = isMoved ? keeper.missing(before) : [] } = record.state;
  const isChanged = !isLeftToAdd && (isMoved || termsOf(before) !== termsOf(lease));
  const begun = isChanged ? { ...noted, unapplied: before, without } : noted;
  if (!updateRecord(call, record, begun, isChanged ? bootClock() : dueAt(lease, bootClock()))) {
    if (findInterface(call, record)) await leases.release(place, next);
    return;
  }
  if (isLeftToAdd) return;
  applyOver(place, keeper, { lease, before, without });
  if (isChanged) updateRecord(call, record, noted, dueAt(lease, bootClock()));
  const what = `"${place.link.name}" of container "${call.env.containerId}"`;
  if (leases.routesOf(next).join() !== leases.routesOf(record.state).join())
    call.log.warn(
      `${what} now has the routes ${listed(leases.routesOf(next))}, as its server says; ADD reported ${listed(reportedRoutes)}`,
    );
  if (hasOtherResolvers(before, lease))
    call.log.warn(
      `The server names other resolvers for ${what}, ${listed([...lease.nameservers, ...lease.search])}; those of a running container stay as they are: recreate it`,
    );
  if (!isMoved) return;
  if (reported === lease.address) call.log.info(`${what} has ${lease.address} again`);
  else
    call.log.warn(
      `${what} now has ${lease.address}: ADD reported ${reported}, and host ports, packet filters and the runtime still refer to that; recreate the container`,
    );
}

function termsOf({ since, duration, renewAfter, rebindAfter, ...terms }: CommonLease): string {
  return JSON.stringify(terms);
}

function applyOver<L extends CommonLease>(
  place: OpenInterface,
  keeper: LeaseKeeper<L>,
  { lease, before, without }: { readonly lease: L; readonly before: L; readonly without: readonly string[] },
): void {
  if (before.address !== lease.address) withdrawAddress(place, before);
  keeper.apply(lease, before, without);
}

/** Ends what a process began that noted a lease, and died before the interface had it: nothing else would take the former address away. */
function complete<S extends LeaseState>({ call, record, place, keeper }: Visit<S>, before: S['lease']): void {
  const { unapplied: _, without = [], ...rest } = record.state;
  const state = rest as unknown as S;
  const { lease } = state;
  if (isOver(state)) {
    for (const one of [before, lease]) withdrawAddress(place, one);
    call.log.warn(`Removed ${before.address} from "${place.link.name}": the lease that followed has expired`);
    updateRecord(call, record, { ...state, withdrawn: true, without }, bootClock());
    return;
  }
  applyOver(place, keeper, { lease, before, without });
  updateRecord(call, record, state, dueAt(lease, bootClock()));
  call.log.warn(
    `"${place.link.name}" now has ${lease.address}: the process that was giving it that had died`,
  );
}

function hasOtherResolvers(before: CommonLease, now: CommonLease): boolean {
  const [one, other] = [before, now].map(({ nameservers, search }) => JSON.stringify([nameservers, search]));
  return one !== other;
}
