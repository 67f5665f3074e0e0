// What does the dhcp plugin do for each verb?
import { refuseTakenAddresses } from '../../src/attach/conflict.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { awaitTraffic } from '../../src/attach/ready.ts';
import { stateDir } from '../../src/cni/directories.ts';
import { findCniArgs } from '../../src/cni/env.ts';
import { CniError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { decode } from '../../src/cni/json.ts';
import type { Result } from '../../src/cni/result.ts';
import { parseCidr, parseIp } from '../../src/net/ip.ts';
import { findLink, IFF_UP, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { bootClock, isKept } from '../../src/node/upkeep/note.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/steps.ts';
import { Code } from './codec.ts';
import {
  asksIpv4,
  DEFAULT_TIMEOUT_S,
  DhcpConf,
  needsUpkeep,
  ReleaseConf,
  serversOf,
  validateDhcpConf,
  wishesOf,
} from './config.ts';
import { type Client, withClient } from './conversation.ts';
import { applyLease, followMtu, type MtuLimits, missingRoutes } from './follow.ts';
import {
  acquire,
  askAbout,
  type ClientPolicy4,
  IPV4_LEASES,
  type Lease,
  mergeResults,
  resultOf,
} from './lease.ts';
import {
  checkLease,
  clientIdOf,
  collectLeases,
  dueAt,
  hasIpv6Record,
  hasIpv6Records,
  keepLease,
  noteLease,
  type OpenInterface,
  releaseOnFailure,
  requireLease,
  returnLease,
} from './upkeep.ts';

/** Obtains addresses from servers and routers on the network that the interface is connected to. */
export const plugin = definePlugin({
  name: 'dhcp',
  // Not the full schema: DEL must work even if options are invalid.
  config: ReleaseConf,
  netns: 'required',

  async add(call) {
    const conf = readConf(call);
    validateDhcpConf(conf);
    const link = requireInterface(call);
    const listen = conf.ipam.ipv6 && (await loadIpv6()).startIpv6(call, conf, link);
    await bringUp(call, link);
    const ipv6 = listen ? listen() : undefined;
    try {
      const results: Result[] = [];
      if (asksIpv4(conf)) results.push(await obtainIpv4(call, conf, link));
      if (ipv6) results.push(await ipv6.obtain());
      return mergeResults(results);
    } finally {
      ipv6?.close();
    }
  },

  async check(call) {
    const conf = readConf(call);
    if (asksIpv4(conf)) checkLease(call, IPV4_LEASES);
    if (conf.ipam.ipv6) (await loadIpv6()).checkIpv6(call, conf.ipam.ipv6);
  },

  async upkeep(call, restarted) {
    const conf = readConf(call);
    if (asksIpv4(conf)) await keepIpv4(call, conf, restarted);
    else await (await loadIpv6()).keepIpv6(call, conf, restarted);
  },

  async del(call) {
    await tryAll([
      () => returnLease(call, IPV4_LEASES),
      async () => {
        if (hasIpv6Record(call)) await returnLease(call, (await loadIpv6()).IPV6_LEASES);
      },
    ]);
  },

  async gc(call) {
    await tryAll([
      () => collectLeases(call, IPV4_LEASES),
      async () => {
        if (hasIpv6Records(call)) await collectLeases(call, (await loadIpv6()).IPV6_LEASES);
      },
    ]);
  },

  status(call) {
    const conf = readConf(call);
    validateDhcpConf(conf);
    if (!needsUpkeep(conf) || isKept(stateDir(call.environment))) return;
    throw new CniError(
      ErrorCode.unavailableLimited,
      'Cannot keep leases: no daemon renews them; start "catena daemon"',
      {
        details:
          'ADD works; the next daemon takes up its leases, until then they last as long as the server said',
      },
    );
  },
});

/** Only for those who ask for it: IPv6 is as much code again. */
async function loadIpv6(): Promise<typeof import('./ipv6/verbs.ts')> {
  return import('./ipv6/verbs.ts');
}

function readConf({ request, network }: Call): DhcpConf {
  return decode(DhcpConf, request, `configuration of "dhcp" in network "${network}"`);
}

function requireInterface(call: Call): Link {
  const { ifname, netns } = call.env;
  const link = findLink(call.container, ifname);
  if (link) return link;
  throw invalidConfig(`Cannot request an address: "${netns}" has no interface "${ifname}" yet`, {
    details:
      'the plugin that calls dhcp must make the interface first, as bridge and macvlan do; ptp does not',
  });
}

/** Servers are asked through the interface, so it must work before it has an address. */
async function bringUp(call: Call, link: Link): Promise<void> {
  if (!(link.flags & IFF_UP)) {
    setLink(call.container, link.index, { up: true });
    call.onFailure(`set "${link.name}" down`, () => setLink(call.container, link.index, { up: false }));
  }
  await awaitTraffic(call.log, [{ socket: call.container, link, ips: [] }]);
}

/**
 * Obtains a lease through the interface, which must be up, notes it, and lowers the MTU of the interface if the server says so.
 * @throws CniError 11 when there is no lease in time
 */
async function obtainIpv4(call: Call, conf: DhcpConf, link: Link): Promise<Result> {
  const place = { netns: call.containerNetns, link, socket: call.container };
  const policy = policyFor(call, conf, place);
  const clientId = policy.provide.get(Code.clientId) ?? clientIdOf(attachmentOf(call));
  const limit = { link, timeoutS: conf.ipam.timeout ?? DEFAULT_TIMEOUT_S };
  const lease = await requireLease(call, IPV4_LEASES, limit, (...wanted) =>
    withClient(place, clientId, client => acquire(client, policy, ...wanted)),
  );
  const { mtu } = link;
  const state = { lease, clientId: Buffer.from(clientId).toString('hex'), unseen: true, ownMtu: mtu };
  releaseOnFailure(call, IPV4_LEASES, place, state);
  noteLease(call, IPV4_LEASES, state, dueAt(lease, bootClock()));
  if (followMtu(place, lease, mtuLimitsOf(call, conf, mtu)))
    call.onFailure('restore the MTU', () => setLink(call.container, link.index, { mtu }));
  return resultOf(lease, conf.ipam.priority);
}

/** As {@link keepLease}, with routes and MTU. */
function keepIpv4(call: Call, conf: DhcpConf, restarted: boolean): Promise<void> {
  const { timeout: timeoutS = DEFAULT_TIMEOUT_S } = conf.ipam;
  return keepLease(call, IPV4_LEASES, { restarted, timeoutS }, (place, { clientId, ownMtu }) => {
    const policy = policyFor(call, conf, place);
    const talk = <T>(work: (client: Client) => Promise<T>) =>
      withClient(place, Uint8Array.from(Buffer.from(clientId, 'hex')), work);
    return {
      ask: (...question) => talk(client => askAbout(client, policy, ...question)),
      acquire: (...wanted) => talk(client => acquire(client, policy, ...wanted)),
      missing: lease => missingRoutes(place, lease),
      apply(lease, before, without) {
        followMtu(place, lease, mtuLimitsOf(call, conf, ownMtu), before);
        applyLease(place, lease, { before, priority: conf.ipam.priority, without });
      },
    };
  });
}

function policyFor(call: Call, conf: DhcpConf, place: OpenInterface): ClientPolicy4 {
  const { servers, detectConflicts = true } = conf.ipam;
  // Its parent cannot tell which of the interfaces on it a unicast to an unknown address is for.
  const isShared = place.link.kind === 'ipvlan';
  return {
    ...wishesOf(conf, findCniArgs(call.env.args)),
    broadcast: isShared,
    servers: serversOf(servers, 4),
    ...(detectConflicts && !isShared ? { findHolder: (lease: Lease) => findHolder(place, lease) } : {}),
  };
}

/**
 * Probes for the address of a lease on an interface that does not have it (RFC 2131, 4.4.1), for up to 200 ms.
 * @returns who has it, in text; undefined if no host answers
 */
async function findHolder({ netns, link }: OpenInterface, lease: Lease): Promise<string | undefined> {
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

function mtuLimitsOf({ log }: Call, { ipam }: DhcpConf, own: number): MtuLimits {
  return { own, needsIpv6: ipam.ipv6 !== undefined, log };
}
