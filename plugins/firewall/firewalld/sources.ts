// How are the addresses of an attachment added to a zone of firewalld, removed from it and checked?

import type { DBusError, MessageBus } from 'dbus-native';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { IP_BITS, type Ip, renderIp } from '../../../src/net/ip.ts';
import { hasChain } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';

/**
 * Whether firewalld is running and rejects what it was not told about. Its rules are looked up first, with two requests; only if
 * they exist is the bus asked whether firewalld itself is running.
 */
export async function isFirewalldRunning(socket: NetlinkSocket): Promise<boolean> {
  return (
    hasFirewalldRules(socket) &&
    withFirewalld(
      async () => true,
      () => false,
    )
  );
}

/**
 * Checks that firewalld is running and has the zone.
 * @throws CniError 7 for an unknown zone, Error when firewalld is not running
 */
export async function requireZone(zone: string): Promise<void> {
  await withFirewalld(async firewalld => {
    const zones = await firewalld.listZones();
    if (zones.includes(zone)) return;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "firewalldZone": "${zone}": firewalld has no such zone`,
      { details: `its zones are ${zones.map(one => `"${one}"`).join(', ')}` },
    );
  }, refuse);
}

/** @throws Error naming the first address that is already in another zone */
export async function requireUnclaimed(zone: string, pods: readonly Ip[]): Promise<void> {
  await withFirewalld(async firewalld => {
    for (const pod of pods) {
      const found = await firewalld.findZone(sourceOf(pod));
      if (found === undefined || found === zone) continue;
      throw new Error(
        `Cannot add source ${sourceOf(pod)} to zone "${zone}" of firewalld: it is in zone "${found}"`,
      );
    }
  }, refuse);
}

/** @throws Error with firewalld's message */
export async function addSources(zone: string, pods: readonly Ip[]): Promise<void> {
  await withFirewalld(async firewalld => {
    for (const pod of pods) await firewalld.addSource(zone, sourceOf(pod));
  }, refuse);
}

/** @throws Error naming the first address that the zone does not have */
export async function checkSources(zone: string, pods: readonly Ip[]): Promise<void> {
  await withFirewalld(async firewalld => {
    for (const pod of pods) {
      const found = await firewalld.findZone(sourceOf(pod));
      if (found === zone) continue;
      const place = found === undefined ? 'no zone' : `zone "${found}"`;
      throw new Error(
        `Cannot confirm source ${sourceOf(pod)} of zone "${zone}": firewalld has it in ${place}; a reload forgets sources`,
      );
    }
  }, refuse);
}

/**
 * Removes addresses from the zones that have them. If firewalld is not running, its runtime state is gone anyway.
 * @param isMeant returns false to leave an address in its zone
 */
export async function removeSources(
  pods: readonly Ip[],
  isMeant: (zone: string, pod: Ip) => boolean = () => true,
): Promise<void> {
  if (pods.length === 0) return;
  await withFirewalld(
    async firewalld => {
      for (const pod of pods) {
        const zone = await firewalld.findZone(sourceOf(pod));
        if (zone !== undefined && isMeant(zone, pod)) await firewalld.removeSource(zone, sourceOf(pod));
      }
    },
    () => undefined,
  );
}

/** Removes addresses that the reference added to the zone, if firewalld is running at all. */
export async function removeForeignSources(
  socket: NetlinkSocket,
  pods: readonly Ip[],
  zone: string,
): Promise<void> {
  if (hasFirewalldRules(socket)) await removeSources(pods, found => found === zone);
}

/** With nf_tables it has a table of its own; with iptables it has chains in the table "filter". */
function hasFirewalldRules(socket: NetlinkSocket): boolean {
  return (
    hasChain(socket, { family: 'inet', name: 'firewalld' }, 'filter_FORWARD') ||
    hasChain(socket, { family: 'ip', name: 'filter' }, 'FORWARD_ZONES')
  );
}

/** As the reference writes it: firewalld compares strings. */
function sourceOf(pod: Ip): string {
  return `${renderIp(pod)}/${IP_BITS[pod.family]}`;
}

function refuse(): never {
  throw new Error('Cannot query firewalld: it is not running, or not on the system bus');
}

/** Where the system bus listens unless `DBUS_SYSTEM_BUS_ADDRESS` says otherwise (D-Bus specification, "System message bus"). */
const DEFAULT_ADDRESS = 'unix:path=/var/run/dbus/system_bus_socket';
const NAME = 'org.fedoraproject.FirewallD1';
/** firewalld takes tens of milliseconds for a change, and longer during a reload. */
const REPLY_DEADLINE_MS = 15_000;

/** The requests to firewalld. Zones hold addresses: packets from those addresses are subject to the zone's rules. */
interface Firewalld {
  /** Same as: `firewall-cmd --get-zones` */
  listZones(): Promise<string[]>;
  /** The zone that has the source; undefined if none has. Same as: `firewall-cmd --get-zone-of-source <source>` */
  findZone(source: string): Promise<string | undefined>;
  /** Ignored if the zone already has it. Same as: `firewall-cmd --zone <zone> --add-source <source>` */
  addSource(zone: string, source: string): Promise<void>;
  /** Ignored if missing. Same as: `firewall-cmd --zone <zone> --remove-source <source>` */
  removeSource(zone: string, source: string): Promise<void>;
}

/**
 * Runs a function while the bus is open, or another one when firewalld is not running. Does not start firewalld.
 * @throws Error with firewalld's message
 */
async function withFirewalld<T>(
  work: (firewalld: Firewalld) => Promise<T>,
  otherwise: () => T | Promise<T>,
): Promise<T> {
  const bus = await openBus();
  if (bus === undefined) return otherwise();
  try {
    return (await hasOwner(bus)) ? await work(speakTo(bus)) : await otherwise();
  } finally {
    bus.connection.end();
  }
}

/** Undefined when nothing listens there. */
async function openBus(): Promise<MessageBus | undefined> {
  const busAddress = process.env.DBUS_SYSTEM_BUS_ADDRESS || DEFAULT_ADDRESS;
  const { createClient } = await import('dbus-native');
  const bus = createClient({ busAddress, timeout: REPLY_DEADLINE_MS });
  const outcome = await new Promise<'open' | Error>(resolve => {
    const deadline = setTimeout(() => resolve(new Error('it does not reply')), REPLY_DEADLINE_MS);
    const settle = (result: 'open' | Error): void => {
      clearTimeout(deadline);
      resolve(result);
    };
    bus.connection.once('connect', () => settle('open'));
    // Kept for the lifetime of the connection: without a listener, an error would end the process.
    bus.connection.on('error', settle);
  });
  if (outcome === 'open') return bus;
  bus.connection.end();
  const { code } = outcome as { code?: unknown };
  if (code === 'ENOENT' || code === 'ECONNREFUSED') return undefined;
  throw new Error(`Cannot open the system bus at "${busAddress}": ${outcome.message}`, { cause: outcome });
}

/** Any other call would make the bus start firewalld. */
async function hasOwner(bus: MessageBus): Promise<boolean> {
  const body = { member: 'NameHasOwner', signature: 's', body: [NAME] };
  return (await bus.invokeDbus<boolean>(body)) === true;
}

function speakTo(bus: MessageBus): Firewalld {
  const call = async <T>(
    action: string,
    member: string,
    args: readonly string[],
    tolerated = '',
  ): Promise<T> => {
    try {
      return await bus.invoke<T>({
        destination: NAME,
        path: '/org/fedoraproject/FirewallD1',
        interface: `${NAME}.zone`,
        member,
        // Without arguments, the signature must be absent.
        ...(args.length ? { signature: 's'.repeat(args.length), body: [...args] } : {}),
      });
    } catch (cause) {
      const { message } = cause as DBusError;
      if (tolerated && message.includes(tolerated)) return undefined as T;
      throw new Error(`Cannot ${action}: firewalld replied ${message}`, { cause });
    }
  };
  const words = (zone: string, source: string): string => `source ${source} of zone "${zone}"`;
  return {
    listZones: () => call('list zones', 'getZones', []),
    findZone: async source =>
      (await call<string>(`find the zone of ${source}`, 'getZoneOfSource', [source])) || undefined,
    addSource: (zone, source) =>
      call(`add ${words(zone, source)}`, 'addSource', [zone, source], 'ZONE_ALREADY_SET'),
    removeSource: (zone, source) =>
      call(`remove ${words(zone, source)}`, 'removeSource', [zone, source], 'UNKNOWN_SOURCE'),
  };
}
