// How does an attachment get an IPv4 lease, and how is that confirmed and given back?

import { planRoute } from '../../src/attach/addressing.ts';
import { refuseTakenAddresses } from '../../src/attach/conflict.ts';
import { addRoutes } from '../../src/attach/container.ts';
import { findCniArgs } from '../../src/cni/env.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import type { Log } from '../../src/log.ts';
import { parseCidr, parseIp, renderCidr, sameIp } from '../../src/net/ip.ts';
import { addAddressRequest, listAddresses, removeAddress } from '../../src/netlink/rtnl/addr.ts';
import { type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { bootClock } from '../../src/node/upkeep/note.ts';
import type { Call } from '../../src/plugin/define.ts';
import { Code } from './codec.ts';
import { DEFAULT_TIMEOUT_S, type DhcpConf, serversOf, wishesOf } from './config.ts';
import { type Client, type ClientInterface, withAddressedClient, withClient } from './conversation.ts';
import {
  acquire,
  clientIdIn,
  confirm,
  IPV4_LEASES,
  type Lease,
  type LeaseState,
  type Manner,
  rebind,
  release,
  renew,
} from './lease.ts';
import { dueAt, resultOf } from './plan.ts';
import {
  attachmentOf,
  checkLease,
  clientIdOf,
  dropRecord,
  findRecord,
  newRecord,
  putRecord,
} from './record.ts';
import { type Keeping, keepLease, type OpenInterface } from './upkeep.ts';

/**
 * Obtains a lease through the interface, which must be up, notes it, and lowers the MTU of the interface if the server says so.
 * @throws CniError 11 when there is no lease in time
 */
export async function obtainIpv4(call: Call, conf: DhcpConf, link: Link): Promise<Result> {
  const { manner, priority } = wantedFor(call, conf, link);
  const clientId = manner.provide.get(Code.clientId) ?? clientIdOf(attachmentOf(call));
  const place = { netns: call.containerNetns, link };
  const refusals = { reasons: [] };
  const timeoutS = conf.ipam.timeout ?? DEFAULT_TIMEOUT_S;
  const former = findRecord(call, IPV4_LEASES)?.state.lease.address.split('/')[0];
  const lease = await withClient(place, clientId, client =>
    acquire(client, manner, former, performance.now() + timeoutS * 1000, refusals),
  );
  if (lease === undefined) throw noLease(link, timeoutS, refusals.reasons);
  call.onFailure('release the lease', () => withClient(place, clientId, client => release(client, lease)));
  const state = { lease, clientId: Buffer.from(clientId).toString('hex') };
  const record = newRecord(call, IPV4_LEASES, state, dueAt(lease, bootClock()));
  putRecord(call, record);
  call.onFailure('remove the record of the lease', () => dropRecord(call, record));
  const { mtu } = link;
  if (limitMtu(call.container, link, lease, call.log))
    call.onFailure('restore the MTU', () => setLink(call.container, link.index, { mtu }));
  return resultOf(lease, priority);
}

/** @throws Error when the attachment has no lease, or not the one that ADD reported */
export function checkIpv4(call: Call): void {
  const reported = call.prevResult && (call.prevResult.ips ?? []).map(({ address }) => address);
  checkLease(call, IPV4_LEASES, 'a lease', reported, ({ lease }) => lease.address);
}

/** Releases a lease through its interface. */
export function releaseIpv4(place: OpenInterface, state: LeaseState): Promise<void> {
  return withAddressedClient(place, clientIdIn(state), client => release(client, state.lease, place.isFresh));
}

const QUESTIONS = { confirm, renew, rebind };

/** As {@link keepLease}, with routes and MTU. */
export function keepIpv4(call: Call, conf: DhcpConf, restarted: boolean): Promise<void> {
  return keepLease(call, IPV4_LEASES, restarted, (place, state): Keeping<Lease> => {
    const { socket, link } = place;
    const { manner, priority } = wantedFor(call, conf, link);
    const talk = <T>(work: (client: Client) => Promise<T>) =>
      withAddressedClient(place, clientIdIn(state), work);
    return {
      what: 'address',
      ask: (question, giveUpAt) => talk(client => QUESTIONS[question](client, manner, state.lease, giveUpAt)),
      acquire: (former, giveUpAt, refusals) =>
        talk(client => acquire(client, manner, former, giveUpAt, refusals)),
      release: lease => talk(client => release(client, lease)),
      hasAddress: lease => hasAddress(socket, link, lease),
      withdraw: lease => withdrawAddress(socket, link, lease),
      apply(lease, before) {
        limitMtu(socket, link, lease, call.log);
        moveAddress(socket, link, { before, after: lease, priority });
      },
    };
  });
}

/** How to ask servers, for what, and the metric of the routes. */
function wantedFor(call: Call, conf: DhcpConf, link: Link): { manner: Manner; priority: number | undefined } {
  const { provide, request } = wishesOf(conf, findCniArgs(call.env.args));
  const { servers, detectConflicts = true, priority } = conf.ipam;
  // Its parent cannot tell which of the interfaces on it a unicast to an unknown address is for.
  const isShared = link.kind === 'ipvlan';
  const place = { netns: call.containerNetns, link };
  return {
    manner: {
      provide,
      request,
      broadcast: isShared,
      servers: serversOf(servers, 4),
      ...(detectConflicts && !isShared ? { findHolder: (lease: Lease) => findHolder(place, lease) } : {}),
      clock: bootClock,
    },
    priority,
  };
}

function noLease({ name }: Link, timeoutS: number, heard: readonly string[]): CniError {
  const what = heard.length ? heard.join('; ') : 'no DHCP server answered';
  return new CniError(
    ErrorCode.tryAgainLater,
    `Cannot obtain an address for "${name}" within ${timeoutS} s: ${what}`,
    {
      details:
        'the server must be on the network of the interface, have a free address, and be let through by packet filters; a port of a bridge with spanning tree passes nothing for twice its forward delay',
    },
  );
}

/**
 * Probes for the address of a lease on an interface that does not have it (RFC 2131, 4.4.1), for up to 200 ms.
 * @returns who has it, in text; undefined if no host answers
 */
async function findHolder({ netns, link }: ClientInterface, lease: Lease): Promise<string | undefined> {
  const { address, gateway, server } = lease;
  // The server is often a neighbour as well.
  const neighbours = [gateway, server].flatMap(one => (one ? parseIp(one) : []));
  try {
    await refuseTakenAddresses({ containerNetns: netns }, link, [parseCidr(address).ip], neighbours);
    return undefined;
  } catch (thrown) {
    if (thrown instanceof CniError) return thrown.message;
    throw thrown;
  }
}

/**
 * Lowers the MTU of the interface to the one that the server names. A larger one than the interface has is not believed: the
 * link would drop such packets.
 * @returns whether it was changed
 */
function limitMtu(socket: NetlinkSocket, link: Link, { mtu }: Lease, log: Log): boolean {
  if (mtu === undefined || mtu === link.mtu) return false;
  if (mtu > link.mtu) {
    log.debug(`Ignoring MTU ${mtu} of the DHCP server: "${link.name}" has ${link.mtu}`);
    return false;
  }
  setLink(socket, link.index, { mtu });
  return true;
}

/** Gives the interface the lease's address and routes in place of an earlier one's. What is there already is left alone. */
function moveAddress(
  socket: NetlinkSocket,
  link: Link,
  { before, after, priority }: { before: Lease; after: Lease; priority: number | undefined },
): void {
  const isNew = !hasAddress(socket, link, after);
  if (before.address !== after.address) withdrawAddress(socket, link, before);
  const cidr = parseCidr(after.address);
  const { ips = [], routes = [] } = resultOf(after, priority);
  const planned = ips.map(({ address, gateway }) => ({
    cidr: parseCidr(address),
    gateway: gateway ? parseCidr(`${gateway}/32`).ip : undefined,
  }));
  if (isNew || JSON.stringify(before.routes) !== JSON.stringify(after.routes)) {
    addRoutes(
      socket,
      link,
      routes.map(route => planRoute(route, planned)),
      isNew ? [addAddressRequest(link.index, cidr, {})] : [],
    );
  }
}

/** Takes the address of a lease that is over from the interface; the routes through it go with it. */
function withdrawAddress(socket: NetlinkSocket, link: Link, lease: Lease): void {
  if (hasAddress(socket, link, lease)) removeAddress(socket, link.index, parseCidr(lease.address));
}

/** Whether the interface has the address of a lease. */
function hasAddress(socket: NetlinkSocket, link: Link, { address }: Lease): boolean {
  const wanted = parseCidr(address);
  return listAddresses(socket, link.index).some(
    ({ cidr }) => sameIp(cidr.ip, wanted.ip) && renderCidr(cidr) === renderCidr(wanted),
  );
}
