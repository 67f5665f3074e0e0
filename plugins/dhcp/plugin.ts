// What does the dhcp plugin do for each verb?
import { awaitTraffic } from '../../src/attach/ready.ts';
import { findCniArgs } from '../../src/cni/cni-args.ts';
import { stateDir } from '../../src/cni/directories.ts';
import { CniError, describeError, ErrorCode } from '../../src/cni/errors.ts';
import { decode } from '../../src/cni/json.ts';
import { bootId } from '../../src/files/boot-id.ts';
import { findLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { closeNetns, findNetns, inNetns, type Netns } from '../../src/sys/netns.ts';
import { bootClock } from '../../src/upkeep/boot-clock.ts';
import { identityOf, isStillSame } from '../../src/upkeep/identity.ts';
import { isKept } from '../../src/upkeep/keeper.ts';
import { limitMtu } from './apply.ts';
import { acquire, release } from './client/acquire.ts';
import { findHolder } from './client/conflict.ts';
import { withAddressedClient, withClient } from './client/session.ts';
import { Code } from './codec/options.ts';
import { DEFAULT_TIMEOUT_S, DhcpConf, ReleaseConf, validateDhcpConf, wishesOf } from './config.ts';
import { clientIdOf } from './identity.ts';
import type { Lease } from './lease.ts';
import { dueAt, resultOf, stageOf } from './plan.ts';
import {
  attachmentOf,
  clientIdIn,
  dropRecord,
  findRecord,
  type LeaseRecord,
  listRecords,
  newRecord,
  putRecord,
} from './record.ts';
import { keepLease, type Wanted } from './upkeep.ts';

/** GC spares leases this young, in seconds, if no note says when their ADD began: that ADD may still be running. */
const UNNOTED_ADD_S = 60;

/** Obtains an address from a DHCP server on the network that the interface is connected to. */
export const dhcp = definePlugin({
  name: 'dhcp',
  // Not the full schema: DEL must work even if options are invalid.
  config: ReleaseConf,
  netns: 'required',

  async add(call) {
    const conf = readConf(call);
    validateDhcpConf(conf);
    const link = requireInterface(call);
    const { manner, priority } = wantedFor(call, conf, link);
    const clientId = manner.provide.get(Code.clientId) ?? clientIdOf(attachmentOf(call));
    await bringUp(call, link);
    const place = { netns: call.containerNetns, link };
    const refusals = { reasons: [] };
    const timeoutS = conf.ipam.timeout ?? DEFAULT_TIMEOUT_S;
    const former = findRecord(call)?.state.lease.address.split('/')[0];
    const lease = await withClient(place, clientId, client =>
      acquire(client, manner, former, performance.now() + timeoutS * 1000, refusals),
    );
    if (lease === undefined) throw noLease(link, timeoutS, refusals.reasons);
    call.onFailure('release the lease', () => withClient(place, clientId, client => release(client, lease)));
    const record = newRecord(
      call,
      { lease, clientId: Buffer.from(clientId).toString('hex') },
      dueAt(lease, bootClock()),
    );
    putRecord(call, record);
    call.onFailure('remove the record of the lease', () => dropRecord(call, record));
    const { mtu } = link;
    if (limitMtu(call.container, link, lease, call.log))
      call.onFailure('restore the MTU', () => setLink(call.container, link.index, { mtu }));
    return resultOf(lease, priority);
  },

  check(call) {
    const record = findRecord(call);
    if (record === undefined)
      throw new Error(
        `Cannot find a lease of "${call.env.ifname}" in "${stateDir(call.environment)}"; run DEL and ADD`,
      );
    const { lease, withdrawn, reported } = record.state;
    const now = identityOf(call.environment, attachmentOf(call), call.env.netns);
    if (!isStillSame(record.note, now))
      throw new Error(
        `Cannot confirm the lease of ${lease.address}: it is of an earlier attachment of that name; run DEL and ADD`,
      );
    if (withdrawn || stageOf(lease, bootClock()) === 'expired')
      throw new Error(
        `Cannot confirm the lease of ${lease.address}: it has ended, and no server has granted another`,
      );
    const addresses = (call.prevResult?.ips ?? []).map(({ address }) => address);
    if (call.prevResult && !addresses.includes(lease.address)) {
      const former = reported ?? addresses.join(', ');
      throw new Error(
        `Cannot confirm the lease of ${former}: the server has replaced it by ${lease.address}; run DEL and ADD`,
      );
    }
  },

  upkeep(call, restarted) {
    const conf = readConf(call);
    return keepLease(call, restarted, link => wantedFor(call, conf, link));
  },

  async del(call) {
    const record = findRecord(call);
    if (record === undefined) return;
    const netns = call.findContainerNetns();
    if (netns) await giveBack(call, record, netns, call.env.netns);
    dropRecord(call, record);
  },

  async gc(call) {
    const records = listRecords(call);
    const { kept } = call;
    if (kept === undefined) return;
    const now = bootClock();
    const stale = records.filter(({ note, state }) => {
      const isNew = note.boot === bootId(call.environment) && now - state.lease.since < UNNOTED_ADD_S;
      return !kept.has(note) && (kept.isNoted(note) || !isNew);
    });
    await tryAll(stale.map(record => () => collect(call, record)));
  },

  status(call) {
    validateDhcpConf(readConf(call));
    if (isKept(stateDir(call.environment))) return;
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

function readConf({ request, network }: Call): DhcpConf {
  return decode(DhcpConf, request, `configuration of "dhcp" in network "${network}"`);
}

function requireInterface(call: Call): Link {
  const { ifname, netns } = call.env;
  const link = findLink(call.container, ifname);
  if (link) return link;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot request an address: "${netns}" has no interface "${ifname}" yet`,
    {
      details:
        'the plugin that calls dhcp must make the interface first, as bridge and macvlan do; ptp does not',
    },
  );
}

/** Servers are asked through the interface, so it must work before it has an address. */
async function bringUp(call: Call, link: Link): Promise<void> {
  if (!(link.flags & IFF_UP)) {
    setLink(call.container, link.index, { up: true });
    call.onFailure(`set "${link.name}" down`, () => setLink(call.container, link.index, { up: false }));
  }
  await awaitTraffic(call.log, [{ socket: call.container, link, ips: [] }]);
}

function wantedFor(call: Call, conf: DhcpConf, link: Link): Wanted {
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
      servers,
      ...(detectConflicts && !isShared ? { findHolder: (lease: Lease) => findHolder(place, lease) } : {}),
      clock: bootClock,
    },
    priority,
  };
}

/** Releases a lease, if its interface still exists. Best effort: the server forgets the lease in time. */
async function giveBack(call: Call, { note, state }: LeaseRecord, netns: Netns, path: string): Promise<void> {
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
    if (!(link.flags & IFF_UP)) setLink(socket, link.index, { up: true });
    await withAddressedClient({ netns, link }, clientIdIn(state), client => release(client, lease));
  } catch (cause) {
    call.log.warn(
      `Cannot release ${lease.address}: ${describeError(cause)}; the server keeps it until it expires`,
    );
  } finally {
    socket.close();
  }
}

async function collect(call: Call, record: LeaseRecord): Promise<void> {
  const { note, state } = record;
  call.log.info(`Releasing ${state.lease.address} of stale attachment ${note.containerId}/${note.ifname}`);
  const path = note.call.env.CNI_NETNS ?? '';
  const netns = findNetns(path);
  try {
    if (netns) await giveBack(call, record, netns, path);
  } finally {
    if (netns) closeNetns(netns);
  }
  dropRecord(call, record);
}

function noLease({ name }: Link, timeoutS: number, heard: readonly string[]): CniError {
  const what = heard.length ? heard.join('; ') : 'no DHCP server answered';
  return new CniError(
    ErrorCode.tryAgainLater,
    `Cannot obtain an address for "${name}" within ${timeoutS} s: ${what}`,
    {
      details:
        'the server must be on the network of the interface, have a free address, and be let through by packet filters',
    },
  );
}
