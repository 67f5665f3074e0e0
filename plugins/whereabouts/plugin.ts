// What does whereabouts do for each verb?

import { existsSync, readFileSync } from 'node:fs';
import { pickCniArgs } from '../../src/cni/env.ts';
import {
  CniError,
  ErrorCode,
  invalidConfig,
  invalidEnvironment,
  tryAgainLater,
} from '../../src/cni/errors.ts';
import { decodeFor, defined, isObject, type JsonObject, tryParse } from '../../src/cni/json.ts';
import { type Result, renderRoutes, resultIp } from '../../src/cni/result.ts';
import { fileExists } from '../../src/files/read-file.ts';
import { leaseDirOf, listLeases, renderAttachment } from '../../src/ipam/lease-files.ts';
import { unusedGarbage, withStore } from '../../src/ipam/lease-store.ts';
import {
  type Cidr,
  cidrContains,
  findCidr,
  findIp,
  type Ip,
  renderCidr,
  renderIp,
  sameIp,
} from '../../src/net/ip.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/steps.ts';
import {
  allocate,
  type Books,
  findEntry,
  findSlice,
  type Holder,
  nodeNameIn,
  poolsOfNode,
  release,
  requireRoom,
} from './books.ts';
import { type Ipam, WhereaboutsConf } from './config.ts';
import { decimal, findNet, type Local, planRanges, poolsOf, type Range } from './plan.ts';

/** All attempts of one call; a runtime waits longer. */
const DEADLINE_MS = 30_000;
const REQUEST_MS = 5_000;
const SETTLE_MS = 1_000;

/** Hands out addresses that are unique in a cluster, in the objects of whereabouts. */
export const plugin = definePlugin({
  name: 'whereabouts',
  config: WhereaboutsConf,
  netns: 'unused',

  async add(call) {
    const ipam = ipamOf(call);
    const fixed = staticAddresses(call, ipam);
    const books = await openBooks(ipam);
    const ranges = await rangesFor(call, ipam, books);
    const holder = holderOf(call);
    call.onFailure('release the addresses', () => releaseAll(call, books, ranges, holder));
    const ips: Ip[] = [];
    // A requested address of a range is allocated there: otherwise another pod could have it, too.
    const wishes = ranges.map(range => wishIn(range, fixed));
    refuseOtherSlices(ipam, ranges, fixed);
    const local = localOf(call, ranges);
    for (const [i, range] of ranges.entries())
      ips.push(await allocate(books, range, holder, wishes[i], local[i]));
    const extra = fixed
      .filter(one => !ranges.some(range => isAskedIn(range, one)))
      .map(({ cidr, gateway }) => ({ address: renderCidr(cidr), ...defined({ gateway }) }));
    note(call, ips);
    return resultOf(ipam, ranges, ips, extra);
  },

  async check(call) {
    const ipam = ipamOf(call);
    const books = await openBooks(ipam);
    const holder = holderOf(call);
    const reported = call.prevResult?.ips?.flatMap(({ address }) => findCidr(address)?.ip ?? []) ?? [];
    for (const { range, ip } of await entriesOf(call, ipam, books, holder)) {
      if (ip === undefined)
        throw new Error(
          `Cannot find an address of ${renderAttachment(call.env)} in pool "${range.poolName}"; recreate the container`,
        );
      if (reported.length && !reported.some(one => sameIp(one, ip)))
        throw new Error(
          `Cannot confirm address ${reported.map(renderIp).join(', ')} of ${renderAttachment(call.env)}: ` +
            `it holds ${renderIp(ip)} in pool "${range.poolName}"; recreate the container`,
        );
    }
  },

  async del(call) {
    const ipam = ipamOf(call);
    const books = await openBooks(ipam);
    // Whatever CNI_ARGS say: an ADD that refused them is followed by a DEL.
    const holder = { id: call.env.containerId, ifname: call.env.ifname };
    await releaseAll(call, books, await poolsFor(call, ipam, books, holder), holder);
  },

  async gc(call) {
    const { kept, log } = call;
    const dir = dirOf(call);
    if (kept === undefined || !fileExists(dir)) return;
    // Entries do not name their node: only what this node has noted may be its garbage.
    const garbage = inNotes(call, store => {
      const unused = unusedGarbage(store, dir, kept, log);
      // A note that a power failure left empty does not say whose entry to remove.
      store.release(unused.filter(address => store.isTorn(address)));
      return unused.flatMap(address => store.findOwner(address) ?? []);
    });
    if (garbage.length === 0) return;
    const ipam = ipamOf(call);
    const books = await openBooks(ipam);
    const ranges = await poolsFor(call, ipam, books);
    const owners = new Map(garbage.map(owner => [renderAttachment(owner), owner]));
    await tryAll(
      [...owners.values()].map(
        ({ containerId, ifname = '' }) =>
          () =>
            releaseAll(call, books, ranges, { id: containerId, ifname }),
      ),
    );
  },

  async status(call) {
    try {
      const ipam = ipamOf(call);
      const books = await openBooks(ipam);
      for (const range of await rangesFor(call, ipam, books)) await requireRoom(books, range);
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, (cause as Error).message, { cause });
    }
  },
});

/** All ranges, even if one fails: what remained in a later one would never be released. */
async function releaseAll(
  call: Call,
  books: Books,
  ranges: readonly Range[],
  holder: Pick<Holder, 'id' | 'ifname'>,
): Promise<void> {
  await tryAll(ranges.map(range => () => release(books, range, holder)));
  const owner = { containerId: holder.id, ifname: holder.ifname };
  if (fileExists(dirOf(call))) inNotes(call, store => store.release(store.findLeasesOf(owner)));
}

/** What this node has allocated: for GC, and for `catena ipam`. */
function note(call: Call, ips: readonly Ip[]): void {
  const owner = call.env;
  inNotes(call, store => {
    // The pool decides: a note of another attachment is of one that is gone, and an empty one is of a power failure.
    store.release(ips.filter(ip => store.isTaken(ip)).map(renderIp));
    store.reserve(
      ips.map((ip, setIndex) => ({ ip, setIndex })),
      owner,
    );
  });
}

/** What this node has noted, for each range. */
function localOf(call: Call, ranges: readonly Range[]): Local[] {
  const dir = dirOf(call);
  if (!fileExists(dir)) return [];
  const noted = new Set(listLeases(dir));
  return inNotes(call, store => ranges.map((_, i) => ({ last: store.findLastReserved(i), noted })));
}

function inNotes<T>(call: Call, work: Parameters<typeof withStore<T>>[2]): T {
  return withStore(dirOf(call), { reclaim: false, create: true }, work);
}

async function openBooks(ipam: Ipam): Promise<Books> {
  const kubeconfig = ipam.kubernetes?.kubeconfig;
  if (!kubeconfig) {
    throw invalidConfig('Cannot allocate addresses: "kubernetes.kubeconfig" is missing', {
      details: 'give it in "ipam", or in the file that "configuration_path" names',
    });
  }
  const { namespaceIn, openApiServer } = await import('../../src/delegate/api-server.ts');
  return {
    server: openApiServer({ kubeconfig, timeoutMs: REQUEST_MS }),
    namespace: namespaceIn(kubeconfig) ?? 'kube-system',
    network: ipam.network_name ?? '',
    overlapping: ipam.enable_overlapping_ranges ?? true,
    giveUpAt: performance.now() + DEADLINE_MS,
    settleMs: SETTLE_MS,
    random: Math.random,
  };
}

/** The ranges, or this node's slice of one. */
async function rangesFor(call: Call, ipam: Ipam, books: Books): Promise<readonly Range[]> {
  const ranges = planRanges(ipam);
  return ipam.node_slice_size && ranges[0] ? [await sliceFor(call, ipam, books, ranges[0])] : ranges;
}

interface RangeEntry {
  readonly range: Range;
  readonly ip: Ip | undefined;
}

/** What a holder has: a slice may have moved since, and then its entry is in the pool of the one before. */
async function entriesOf(call: Call, ipam: Ipam, books: Books, holder: Holder): Promise<RangeEntry[]> {
  if (ipam.node_slice_size) {
    for (const range of await poolsFor(call, ipam, books, holder)) {
      const ip = await findEntry(books, range, holder);
      if (ip) return [{ range, ip }];
    }
    return (await rangesFor(call, ipam, books)).map(range => ({ range, ip: undefined }));
  }
  const entries: RangeEntry[] = [];
  for (const range of planRanges(ipam)) entries.push({ range, ip: await findEntry(books, range, holder) });
  return entries;
}

/** Where entries of this node may be, or those of a holder. */
async function poolsFor(
  call: Call,
  ipam: Ipam,
  books: Books,
  holder?: Pick<Holder, 'id' | 'ifname'>,
): Promise<readonly Range[]> {
  const skip = call.env.command === 'DEL' ? (problem: CniError) => call.log.warn(problem.message) : undefined;
  const pools = poolsOf(ipam, skip);
  const [whole] = pools;
  if (!ipam.node_slice_size || whole === undefined) return pools;
  if (holder !== undefined) {
    // The list of all pools is long in a large cluster, and a slice seldom moves.
    const slice = await sliceFor(call, ipam, books, whole).catch(() => undefined);
    if (slice && (await findEntry(books, slice, holder))) return [slice];
  }
  return poolsOfNode(books, whole, nodeOf(call, ipam));
}

function sliceFor(call: Call, ipam: Ipam, books: Books, range: Range): Promise<Range> {
  return findSlice(books, range, nodeOf(call, ipam), call.network);
}

function nodeOf({ environment }: Call, { kubernetes }: Ipam): string {
  return nodeNameIn(environment, kubernetes?.kubeconfig);
}

/** An address of the configuration, or one that CNI_ARGS asks for. */
interface StaticAddress {
  readonly cidr: Cidr;
  readonly gateway: string | undefined;
  readonly isAsked: boolean;
}

/**
 * Addresses of the configuration, then those of CNI_ARGS, whose gateways serve both.
 * @throws CniError 7 or 4 for one that is no address
 */
function staticAddresses(call: Call, ipam: Ipam): StaticAddress[] {
  const { IP = '', GATEWAY = '' } = argsOf(call);
  const { invalidConfig, invalidEnvironment } = ErrorCode;
  const wrong = (code: number, where: string, text: string) =>
    new CniError(code, `Cannot use ${where}: ${JSON.stringify(text)} is no address`);
  const parse = (text: string, where: string, code: number): Cidr => {
    const cidr = findNet(text);
    if (cidr) return cidr;
    throw wrong(code, where, text);
  };
  const gateways = splitList(GATEWAY).map(text => {
    const ip = findIp(decimal(text));
    if (ip) return ip;
    throw wrong(invalidEnvironment, 'CNI_ARGS "GATEWAY"', text);
  });
  const configured = (ipam.addresses ?? []).map(({ address, gateway }) => {
    return { cidr: parse(address, '"ipam.addresses"', invalidConfig), gateway, isAsked: false };
  });
  const asked = splitList(IP).map(text => {
    return { cidr: parse(text, 'CNI_ARGS "IP"', invalidEnvironment), gateway: undefined, isAsked: true };
  });
  return [...configured, ...asked].map(one => {
    const way = gateways.findLast(ip => cidrContains(one.cidr, ip));
    return { ...one, gateway: way ? renderIp(way) : one.gateway || undefined };
  });
}

function isAskedIn({ subnet }: Range, { cidr, isAsked }: StaticAddress): boolean {
  return isAsked && cidrContains(subnet, cidr.ip);
}

/** The address of the range that CNI_ARGS asks for. @throws CniError 4 for more than one */
function wishIn(range: Range, addresses: readonly StaticAddress[]): Ip | undefined {
  const asked = addresses.filter(one => isAskedIn(range, one)).map(({ cidr }) => cidr.ip);
  const [wish, ...more] = asked;
  if (wish === undefined || more.every(one => sameIp(one, wish))) return wish;
  throw invalidEnvironment(
    `Cannot allocate ${asked.map(renderIp).join(', ')} of CNI_ARGS "IP": range ${renderCidr(range.subnet)} gives an attachment one address`,
  );
}

/** What another node hands out must not be given here beside the range. @throws CniError 11 */
function refuseOtherSlices(ipam: Ipam, own: readonly Range[], addresses: readonly StaticAddress[]): void {
  const isIn = (ranges: readonly Range[], one: StaticAddress) => ranges.some(range => isAskedIn(range, one));
  const stray = addresses.find(one => isIn(planRanges(ipam), one) && !isIn(own, one));
  if (stray === undefined) return;
  throw tryAgainLater(
    `Cannot allocate ${renderIp(stray.cidr.ip)} of CNI_ARGS "IP": it is not in this node's slice ${own.map(({ subnet }) => renderCidr(subnet)).join(', ')}`,
  );
}

function splitList(text: string): string[] {
  return text.split(',').filter(Boolean);
}

function resultOf(
  ipam: Ipam,
  ranges: readonly Range[],
  ips: readonly Ip[],
  extra: NonNullable<Result['ips']>,
): Result {
  const gateway = ipam.gateway ? findIp(decimal(ipam.gateway)) : undefined;
  const own = ranges.flatMap(({ prefix }, i) => {
    const ip = ips[i];
    if (ip === undefined) return [];
    return [resultIp({ cidr: { ip, prefix }, gateway: gateway?.family === ip.family ? gateway : undefined })];
  });
  const routes = renderRoutes(ipam.routes ?? []);
  return { ips: [...own, ...extra], ...(routes.length ? { routes } : {}), ...defined({ dns: ipam.dns }) };
}

function ipamOf({ env, request, network }: Call): Ipam {
  const ipam: JsonObject = isObject(request.ipam) ? request.ipam : {};
  const merged = { ...request, ipam: withFlatFile(ipam) };
  const what = `configuration of "whereabouts" in network "${network}"`;
  return decodeFor(env.command, WhereaboutsConf, merged, what).conf.ipam;
}

function argsOf(call: Call) {
  return pickCniArgs(call.args, [
    'K8S_POD_NAMESPACE',
    'K8S_POD_NAME',
    'K8S_POD_INFRA_CONTAINER_ID',
    'K8S_POD_UID',
    'IP',
    'GATEWAY',
    'MAC',
  ]);
}

function holderOf(call: Call): Holder {
  const { K8S_POD_NAMESPACE = '', K8S_POD_NAME = '' } = argsOf(call);
  const { containerId, ifname } = call.env;
  // Without a pod, containers must not be taken for each other.
  const podref = K8S_POD_NAME ? `${K8S_POD_NAMESPACE}/${K8S_POD_NAME}` : `/${containerId}`;
  return { id: containerId, podref, ifname };
}

function dirOf({ request, network }: Call): string {
  return leaseDirOf(request, network);
}

const PLACES = [
  '/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf',
  '/etc/cni/net.d/whereabouts.d/whereabouts.conf',
];

/**
 * `ipam` with what the flat file has in addition; the request's values win. Without a path, a missing file is no error.
 * @throws CniError 7 when the file cannot be used
 */
function withFlatFile(ipam: JsonObject): JsonObject {
  const given = typeof ipam.configuration_path === 'string' && ipam.configuration_path;
  const path = given || PLACES.find(existsSync);
  if (!path) return ipam;
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw invalidConfig(`Cannot read "ipam.configuration_path" ${path}: ${(cause as Error).message}`, {
      cause,
    });
  }
  const flat = tryParse(text);
  if (!isObject(flat)) throw invalidConfig(`Cannot use "${path}": it is not a JSON object`);
  const kubernetes = {
    ...(isObject(flat.kubernetes) && flat.kubernetes),
    ...(isObject(ipam.kubernetes) && ipam.kubernetes),
  };
  return { ...flat, ...ipam, kubernetes };
}
