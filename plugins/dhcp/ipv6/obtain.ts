// How does an attachment get an IPv6 lease?

import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { atLeast, type Result, type SpecVersion } from '../../../src/cni/result.ts';
import {
  type Cidr,
  cidrContains,
  type Ip,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
  sameIp,
} from '../../../src/net/ip.ts';
import {
  addAddress,
  IFA_F_DADFAILED,
  IFA_F_TENTATIVE,
  listAddresses,
  removeAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import { bootClock } from '../../../src/node/upkeep/note.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { DEFAULT_TIMEOUT_S, type DhcpConf, serversOf } from '../config.ts';
import { dnsOf } from '../plan.ts';
import {
  attachmentOf,
  dropRecord,
  duidOf,
  findRecord,
  type Identity,
  iaidOf,
  newRecord,
  putRecord,
} from '../record.ts';
import type { OpenInterface } from '../upkeep.ts';
import type { Advertisement } from './codec.ts';
import { awaitRouters, type RouterWatch, withClient } from './conversation.ts';
import { acquire, IPV6_LEASES, type Lease, type Manner, type Resolvers, release } from './lease.ts';

/** How often routers are asked once a server has answered. */
const ASK_ROUTERS = 2;
/** The plugin that called addresses the interface soon after ADD; then the address gets its lifetimes. */
const FIRST_LOOK_S = 3;

/** Where and until when addresses are sought. */
export interface Search {
  readonly place: OpenInterface;
  readonly routers: RouterWatch;
  /** In milliseconds of `performance.now()`. */
  readonly giveUpAt: number;
}

/**
 * Obtains a lease by DHCPv6, and notes it. Gateway and prefix length are what routers advertise.
 * @throws CniError 11 when there is no lease in time
 */
export async function obtainLease(
  call: Call,
  conf: DhcpConf,
  { place, routers, giveUpAt }: Search,
): Promise<Result> {
  const { timeout = DEFAULT_TIMEOUT_S, priority } = conf.ipam;
  const identity = { duid: duidOf(attachmentOf(call)), iaid: iaidOf(attachmentOf(call)) };
  routers.solicit();
  const former = findRecord(call, IPV6_LEASES)?.state.lease.address;
  const refusals = { reasons: [] };
  const manner = askMeanwhile(mannerFor(conf, place), routers);
  const lease = await withClient(place, identity, giveUpAt, client =>
    acquire(client, manner, former, giveUpAt, refusals),
  );
  if (lease === undefined) throw noLease(place, timeout, refusals.reasons);
  call.onFailure('release the IPv6 lease', () => giveUp(place, identity, lease));
  const heard = await awaitRouters(routers, manner.findHolder ? ASK_ROUTERS - 1 : ASK_ROUTERS);
  const prefix = prefixFor(parseIp(lease.address), heard);
  note(call, identity, lease, prefix);
  const advertised = advertisedResolvers(heard);
  const { nameservers, search } = lease;
  return resultOf({
    addresses: [parseCidr(`${lease.address}/${prefix}`)],
    routers: heard,
    resolvers: {
      nameservers: nameservers.length ? nameservers : advertised.nameservers,
      search: search.length ? search : advertised.search,
    },
    priority,
    version: call.version,
  });
}

/** A server's grant shows that packets pass, so routers are asked again; they answer while the kernel probes for the address. */
function askMeanwhile(manner: Manner, routers: RouterWatch): Manner {
  const { findHolder: probe } = manner;
  if (probe === undefined) return manner;
  const findHolder = (lease: Lease) => {
    if (routers.heard().length === 0) routers.solicit();
    return probe(lease);
  };
  return { ...manner, findHolder };
}

/** How to ask servers. */
export function mannerFor({ ipam }: DhcpConf, place: OpenInterface): Manner {
  const { servers, detectConflicts = true, rapidCommit = false } = ipam;
  return {
    servers: serversOf(servers, 6),
    rapidCommit,
    ...(detectConflicts ? { findHolder: (lease: Lease) => findHolder(place, lease) } : {}),
    clock: bootClock,
  };
}

function note(call: Call, { duid, iaid }: Identity, lease: Lease, prefix: number): void {
  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
  const state = { lease, duid: hex(duid), iaid: hex(iaid), prefix, unseen: true };
  // It is called again for this lease alone: the one of IPv4 has a note of its own.
  const ipam = { ...(call.request.ipam as object), ipv4: false };
  const stdin = JSON.stringify({ ...call.request, ipam });
  const record = newRecord(call, IPV6_LEASES, state, bootClock() + FIRST_LOOK_S, stdin);
  putRecord(call, record);
  call.onFailure('remove the record of the IPv6 lease', () => dropRecord(call, record));
}

async function giveUp(place: OpenInterface, identity: Identity, lease: Lease): Promise<void> {
  await withClient(place, identity, performance.now(), client => release(client, lease));
}

function noLease({ link }: OpenInterface, timeoutS: number, heard: readonly string[]): CniError {
  const what = heard.length ? heard.join('; ') : 'no DHCPv6 server answered';
  return new CniError(
    ErrorCode.tryAgainLater,
    `Cannot obtain an IPv6 address for "${link.name}" within ${timeoutS} s: ${what}`,
    {
      details:
        'the server must be on the network of the interface, have a free address, and be let through by packet filters',
    },
  );
}

/** The kernel probes once, and waits a second, after a delay of up to one second (RFC 4862). */
const DEADLINE_MS = 4_000;
const POLL_MS = 25;

/**
 * Has the kernel probe for the address of a lease on an interface that does not have it (RFC 9915, section 18.2.10.1). The interface
 * has the address for that long only: the plugin that called will add it.
 * @returns what stands against the address, in text; undefined if no host answers
 */
async function findHolder({ socket, link }: OpenInterface, { address }: Lease): Promise<string | undefined> {
  const cidr = parseCidr(`${address}/128`);
  const find = () => listAddresses(socket, link.index).find(one => sameIp(one.cidr.ip, cidr.ip));
  // An attachment that is added again may have it still.
  if (find()) return undefined;
  addAddress(socket, link.index, cidr);
  try {
    for (const giveUpAt = performance.now() + DEADLINE_MS; performance.now() < giveUpAt; ) {
      const { flags = 0 } = find() ?? {};
      if (flags & IFA_F_DADFAILED) return `another host on the network has ${address}`;
      if (!(flags & IFA_F_TENTATIVE)) return undefined;
      await Bun.sleep(POLL_MS);
    }
    return undefined;
  } finally {
    removeAddress(socket, link.index, cidr);
  }
}

/** linux/ipv6_route.h, IP6_RT_PRIO_USER: the metric of default routes that the kernel learns. */
const LEARNED = 1024;
const HOST_PREFIX = 128;
const PRIORITY_SINCE = '1.1.0';

/** What the result is made of. */
interface Findings {
  readonly addresses: readonly Cidr[];
  readonly routers: readonly Advertisement[];
  readonly resolvers: Resolvers;
  readonly priority: number | undefined;
  /** Of the result. */
  readonly version: SpecVersion;
}

/**
 * The IPAM result. Its default route comes after the one that the kernel learns: the plugin that called takes the interface down to
 * address it, and until the next advertisement there would be none. With the same metric, the kernel could not add its own, and would
 * leave the rest of the advertisement unread; so results that cannot state a metric have no default route.
 */
export function resultOf({ addresses, routers, resolvers, priority, version }: Findings): Result {
  const router = routers.find(({ isDefault }) => isDefault)?.router;
  const gateway = router && renderIp(router);
  const dns = dnsOf({ domain: undefined, ...resolvers });
  return {
    ips: addresses.map(cidr => ({ address: renderCidr(cidr), ...(gateway ? { gateway } : {}) })),
    routes:
      gateway && atLeast(version, PRIORITY_SINCE)
        ? [{ dst: '::/0', gw: gateway, priority: (priority || LEARNED) + 1 }]
        : [],
    ...(dns ? { dns } : {}),
  };
}

/** The resolvers that routers name. */
export function advertisedResolvers(routers: readonly Advertisement[]): Resolvers {
  const nameservers = routers.flatMap(one => one.nameservers.map(renderIp));
  return { nameservers: [...new Set(nameservers)], search: [...new Set(routers.flatMap(one => one.search))] };
}

/** The prefix length of a leased address: that of the prefix that routers say is on the link, or of the address alone. */
export function prefixFor(ip: Ip, routers: readonly Advertisement[]): number {
  const onLink = routers.flatMap(({ prefixes }) =>
    prefixes.filter(one => one.onLink && cidrContains(one.cidr, ip)),
  );
  return Math.max(0, ...onLink.map(({ cidr }) => cidr.prefix)) || HOST_PREFIX;
}
