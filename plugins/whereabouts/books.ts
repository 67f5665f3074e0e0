// How are addresses written into whereabouts' objects, while other programs write there, too?
//
// Every change of a pool is a patch that tests the version that was read, so it is refused if another writer, of whichever program,
// was faster. That alone keeps entries apart: the lease for which whereabouts waits is not needed.

import { setTimeout as sleep } from 'node:timers/promises';
import { type CniError, tryAgainLater } from '../../src/cni/errors.ts';
import { isObject, type JsonObject } from '../../src/cni/json.ts';
import { hostName, nodeNameGiven } from '../../src/cni/node-name.ts';
import type { ApiServer } from '../../src/delegate/api-server.ts';
import { tryRead } from '../../src/files/read-file.ts';
import { stretchContains } from '../../src/ipam/stretch.ts';
import { cidrContains, findCidr, type Ip, networkOf, renderCidr, renderIp } from '../../src/net/ip.ts';
import {
  addressOf,
  type Local,
  nextFree,
  offsetOf,
  poolOfSlice,
  type Range,
  reservationName,
  sliceNames,
  sliceOf,
} from './plan.ts';

const API = 'apis/whereabouts.cni.cncf.io/v1alpha1';
const API_VERSION = 'whereabouts.cni.cncf.io/v1alpha1';
/** HTTP statuses: none of that name; one exists, or it has been changed; a test of the patch failed. */
const NOT_FOUND = 404;
const CONFLICT = 409;
const UNPROCESSABLE = 422;
/** Longest pause after another writer was faster. */
const PAUSE_MS = 50;

export interface Holder {
  readonly id: string;
  /** `namespace/name` of the pod. */
  readonly podref: string;
  readonly ifname: string;
}

/** Where the objects are, and how long to try. */
export interface Books {
  readonly server: ApiServer;
  readonly namespace: string;
  /** Separate books for equal ranges. */
  readonly network: string;
  /** Whether each address is reserved in the whole cluster, too. */
  readonly overlapping: boolean;
  readonly giveUpAt: number;
  /** For how long another program may be between an entry that it has removed and the reservation. */
  readonly settleMs: number;
  random(): number;
}

interface PoolState {
  readonly version: string;
  /** False for an object that another program made without a place for entries. */
  readonly hasPlace: boolean;
  readonly entries: Readonly<Record<string, Partial<Holder>>>;
}

/**
 * Writes one address of the range for a holder. One that its pod already has for that interface is taken over, with the new container:
 * a late DEL of the former one then frees nothing. If it is not the wanted one, or is not handed out any longer, it is freed.
 * @param wanted the only address that will do
 * @param local what this node knows of the range
 * @throws CniError 11 when the range is exhausted, the wanted address is taken, or the API cannot be reached
 */
export async function allocate(
  books: Books,
  range: Range,
  holder: Holder,
  wanted?: Ip,
  local?: Local,
): Promise<Ip> {
  const refused = new Set<string>();
  for (;;) {
    const pool = await readPool(books, range);
    const own = Object.entries(pool.entries).find(([offset, entry]) => {
      const isSame = entry.podref === holder.podref && entry.ifname === holder.ifname;
      return isSame && !refused.has(offset) && addressOf(range, offset) !== undefined;
    });
    const former = own && addressOf(range, own[0]);
    if (former && own?.[1].id && !isHandedOut(onlyIn(range, wanted), former)) {
      await release(books, range, { id: own[1].id, ifname: holder.ifname });
      await pauseOr(books, range);
      continue;
    }
    const taken = new Set([...Object.keys(pool.entries), ...refused]);
    const ip = former ?? nextFree(onlyIn(range, wanted), taken, local);
    if (ip === undefined)
      throw wanted ? takenOrUnfit(range, wanted) : exhausted(range, Object.keys(pool.entries).length);
    const offset = offsetOf(range, ip);
    const { id, podref, ifname } = holder;
    const isWritten =
      own?.[1].id === id ||
      (await patch(books, range, pool, [
        ...(pool.hasPlace ? [] : [{ op: 'add', path: '/spec/allocations', value: {} }]),
        { op: own ? 'replace' : 'add', path: `/spec/allocations/${offset}`, value: { id, podref, ifname } },
      ]));
    if (isWritten && (!books.overlapping || (await reserve(books, ip, holder)))) return ip;
    if (isWritten) {
      // Another range has the address. The entry goes before another one is tried, so none is forgotten.
      refused.add(offset);
      await release(books, range, holder);
    }
    await pauseOr(books, range);
  }
}

/**
 * Removes the entries of a holder from the range, and their reservations. Missing ones are ignored.
 * @throws CniError 11 when the API cannot be reached
 */
export async function release(
  books: Books,
  range: Range,
  { id, ifname }: Pick<Holder, 'id' | 'ifname'>,
): Promise<void> {
  let freed: [ip: Ip, offset: string][] = [];
  for (;;) {
    const pool = await findPool(books, range);
    for (const [ip, offset] of freed) {
      // A later container of the pod has the entry now, and may have found the reservation before it was deleted here.
      const { id: later, podref, ifname = '' } = pool?.entries[offset] ?? {};
      if (later && podref && later !== id) await reserve(books, ip, { id: later, podref, ifname });
    }
    freed = [];
    const own = Object.entries(pool?.entries ?? {}).filter(([, entry]) => entry.id === id);
    const exact = own.filter(([, entry]) => entry.ifname === ifname);
    // Entries from before interface names were stored have none: one of them is of this interface.
    const ended = exact.length ? exact : own.filter(([, entry]) => !entry.ifname).slice(0, 1);
    if (pool === undefined || ended.length === 0) return;
    for (const [offset, entry] of ended) {
      const ip = addressOf(range, offset);
      // The reservation first: without its entry it would never be found again.
      if (ip && books.overlapping) {
        await unreserve(books, ip, entry);
        freed.push([ip, offset]);
      }
    }
    const removed = ended.map(([offset]) => ({ op: 'remove', path: `/spec/allocations/${offset}` }));
    if (await patch(books, range, pool, removed)) return;
    await pauseOr(books, range);
  }
}

export async function findEntry(
  books: Books,
  range: Range,
  { id, ifname }: Pick<Holder, 'id' | 'ifname'>,
): Promise<Ip | undefined> {
  const pool = await findPool(books, range);
  const own = Object.entries(pool?.entries ?? {}).find(
    ([, entry]) => entry.id === id && entry.ifname === ifname,
  );
  return own && addressOf(range, own[0]);
}

/** @throws CniError 11 when no address is free */
export async function requireRoom(books: Books, range: Range): Promise<void> {
  const taken = Object.keys((await findPool(books, range))?.entries ?? {});
  if (nextFree(range, new Set(taken)) === undefined) throw exhausted(range, taken.length);
}

async function readPool(books: Books, range: Range): Promise<PoolState> {
  for (;;) {
    const found = await findPool(books, range);
    if (found) return found;
    const metadata = { name: range.poolName, namespace: books.namespace };
    const spec = { range: renderCidr(range.subnet), allocations: {} };
    const body = { apiVersion: API_VERSION, kind: 'IPPool', metadata, spec };
    const created = await books.server.ask('POST', pathOf(books, 'ippools'), body, [CONFLICT]);
    if (created === undefined) await pauseOr(books, range);
  }
}

async function findPool(books: Books, range: Range): Promise<PoolState | undefined> {
  const found = await books.server.ask('GET', pathOf(books, 'ippools', range.poolName));
  if (found === undefined) return undefined;
  const { resourceVersion } = isObject(found.metadata) ? found.metadata : {};
  const { allocations } = isObject(found.spec) ? found.spec : {};
  const entries = Object.entries(isObject(allocations) ? allocations : {});
  return {
    version: String(resourceVersion ?? ''),
    hasPlace: isObject(allocations),
    entries: Object.fromEntries(entries.map(([offset, entry]) => [offset, isObject(entry) ? entry : {}])),
  };
}

/** @returns false if another writer was faster */
async function patch(
  books: Books,
  range: Range,
  { version }: PoolState,
  operations: readonly JsonObject[],
): Promise<boolean> {
  const guarded = [{ op: 'test', path: '/metadata/resourceVersion', value: version }, ...operations];
  const path = pathOf(books, 'ippools', range.poolName);
  return (await books.server.ask('PATCH', path, guarded, [NOT_FOUND, CONFLICT, UNPROCESSABLE])) !== undefined;
}

/** @returns false if the address is reserved for another interface */
async function reserve(books: Books, ip: Ip, { podref, ifname, id }: Holder): Promise<boolean> {
  const name = reservationName(ip, books.network);
  const metadata = { name, namespace: books.namespace };
  const spec = { containerid: id, podref, ifname };
  const collection = pathOf(books, 'overlappingrangeipreservations');
  const body = { apiVersion: API_VERSION, kind: 'OverlappingRangeIPReservation', metadata, spec };
  if (await books.server.ask('POST', collection, body, [CONFLICT])) return true;
  const found = await books.server.ask('GET', `${collection}/${name}`);
  if (found === undefined) return false;
  const holder = isObject(found.spec) ? found.spec : {};
  if (isOf(holder, { podref, ifname })) {
    if (holder.containerid === id) return true;
    // Made again for the new container: who is about to delete the one that was read must not delete this one.
  } else {
    if (await hasEntry(books, ip, holder)) return false;
    // Every writer makes the entry first: this one is of a request that came late, of a program that died, or of the original's DEL, which is
    // about to delete it by its name, so what is made now would go with it.
    await sleep(books.settleMs);
  }
  await deleteRead(books, `${collection}/${name}`, found);
  return (await books.server.ask('POST', collection, body, [CONFLICT])) !== undefined;
}

function isOf(spec: JsonObject, { podref, ifname }: Partial<Holder>): boolean {
  return spec.podref === podref && (spec.ifname ?? ifname) === ifname;
}

async function hasEntry(books: Books, ip: Ip, holder: JsonObject): Promise<boolean> {
  for await (const { spec } of listPools(books)) {
    const { range, allocations } = isObject(spec) ? spec : {};
    const subnet = findCidr(String(range));
    if (subnet === undefined || !cidrContains(subnet, ip) || !isObject(allocations)) continue;
    const entry = allocations[String(ip.value - networkOf(subnet).value)];
    if (isObject(entry) && entry.podref === holder.podref) return true;
  }
  return false;
}

/** In parts: those of a large cluster, with their entries, are too long for one reply. */
async function* listPools(books: Books): AsyncGenerator<JsonObject> {
  const { listPages } = await import('../../src/delegate/api-server.ts');
  for await (const { items } of listPages(books.server, pathOf(books, 'ippools'))) yield* items;
}

/** Deletes the reservation, if it is of this interface. */
async function unreserve(books: Books, ip: Ip, entry: Partial<Holder>): Promise<void> {
  const path = pathOf(books, 'overlappingrangeipreservations', reservationName(ip, books.network));
  const found = await books.server.ask('GET', path);
  if (found && isObject(found.spec) && isOf(found.spec, entry)) await deleteRead(books, path, found);
}

async function deleteRead({ server }: Books, path: string, { metadata }: JsonObject): Promise<void> {
  const { uid } = isObject(metadata) ? metadata : {};
  const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid } };
  await server.ask('DELETE', path, body, [NOT_FOUND, CONFLICT]);
}

async function pauseOr({ giveUpAt, random }: Books, range: Range): Promise<void> {
  if (performance.now() > giveUpAt) {
    throw tryAgainLater(`Cannot write to pool "${range.poolName}": other writers were always faster`);
  }
  await sleep(PAUSE_MS * random());
}

function pathOf({ namespace }: Books, kind: string, name?: string): string {
  const collection = `${API}/namespaces/${encodeURIComponent(namespace)}/${kind}`;
  return name === undefined ? collection : `${collection}/${encodeURIComponent(name)}`;
}

function onlyIn(range: Range, wanted: Ip | undefined): Range {
  if (wanted === undefined) return range;
  return { ...range, free: isHandedOut(range, wanted) ? [[wanted, wanted]] : [] };
}

function isHandedOut({ free }: Range, ip: Ip): boolean {
  return free.some(stretch => stretchContains(stretch, ip));
}

function takenOrUnfit(range: Range, wanted: Ip): CniError {
  return tryAgainLater(
    `Cannot allocate ${renderIp(wanted)} from range ${renderCidr(range.subnet)}: another pod has it, or it is excluded`,
    { details: `"kubectl get ippools ${range.poolName} -o yaml" shows who holds it` },
  );
}

function exhausted(range: Range, used: number): CniError {
  return tryAgainLater(
    // The text after the first colon is whereabouts' own: alerts search for it.
    `Cannot allocate from range ${renderCidr(range.subnet)}: Could not allocate IP in range: no address is free (${used} in use)`,
    { details: `"kubectl get ippools ${range.poolName} -o yaml" shows who holds them` },
  );
}

/** Where whereabouts' installer writes the node's name. */
const NAME_FILES = [
  '/etc/kubernetes/cni/net.d/whereabouts.d/nodename',
  '/etc/cni/net.d/whereabouts.d/nodename',
];

/** The name under which the cluster knows this node. */
export function nodeNameIn(
  environment: Readonly<Record<string, string | undefined>>,
  kubeconfig?: string,
): string {
  const { NODENAME } = environment;
  const given = NODENAME?.trim() || nodeNameGiven(environment, kubeconfig);
  return given || NAME_FILES.map(file => tryRead(file)?.trim()).find(Boolean) || hostName();
}

/**
 * This node's slice of a range.
 * @throws CniError 11 when the controller has not assigned one yet, or the API cannot be reached
 */
export async function findSlice(books: Books, range: Range, node: string, network: string): Promise<Range> {
  const names = sliceNames(range, books.network, network);
  for (const name of names) {
    const object = await books.server.ask('GET', pathOf(books, 'nodeslicepools', name));
    const { allocations } = isObject(object?.status) ? object.status : {};
    const assigned = Array.isArray(allocations) ? allocations.filter(isObject) : [];
    const slice = assigned.find(({ nodeName }) => nodeName === node)?.sliceRange;
    if (typeof slice === 'string' && slice !== '') return sliceOf(range, slice, node, books.network);
  }
  throw tryAgainLater(
    `Cannot allocate addresses: node "${node}" has no slice in ${names.map(name => `"${name}"`).join(' or ')}`,
    {
      details:
        'the controller of whereabouts assigns slices (kubectl get nodeslicepools); the plugin "cluster" needs no controller',
    },
  );
}

/**
 * The pools of a range that may have entries of this node: a slice moves, and goes with its NodeSlicePool, and the entries
 * stay where they were made.
 * @throws CniError 11 when the API cannot be reached
 */
export async function poolsOfNode(books: Books, range: Range, node: string): Promise<Range[]> {
  const found: Range[] = [];
  for await (const { metadata, spec } of listPools(books)) {
    const { name } = isObject(metadata) ? metadata : {};
    const slice = findCidr(String(isObject(spec) ? spec.range : ''));
    if (slice === undefined || !cidrContains(range.subnet, slice.ip)) continue;
    const pool = poolOfSlice(range, slice, node, books.network);
    if (pool.poolName === name) found.push({ ...pool, free: [] });
  }
  return found;
}
