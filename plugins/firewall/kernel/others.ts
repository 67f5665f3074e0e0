// Which packet filters of the host, besides nf_tables, must accept a packet, and how are they told?

import type { DBusError, MessageBus } from 'dbus-native';
import type { FilterOwner } from '../../../src/attach/owner.ts';
import { invalidConfig } from '../../../src/cni/errors.ts';
import { hostCidr, type Ip, renderCidr, sameIp } from '../../../src/net/ip.ts';
import { hasChain } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { FirewallOptions, Other } from '../config.ts';
import type { AccessPlan } from '../plan.ts';
import { findClaimsIn, isKnown, isToldFor } from './elements.ts';
import {
  checkIptables,
  doesIptablesDrop,
  ensureIptables,
  hasReferenceRules,
  releaseForeignRules,
  releaseIptables,
  requireIptables,
  type WhichTables,
  wantedTables,
} from './iptables.ts';

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
    throw invalidConfig(`Cannot use "firewalldZone": "${zone}": firewalld has no such zone`, {
      details: `its zones are ${zones.map(one => `"${one}"`).join(', ')}`,
    });
  }, refuse);
}

/** @throws Error naming the first address that is already in another zone */
async function requireUnclaimed(zone: string, pods: readonly Ip[]): Promise<void> {
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
async function addSources(zone: string, pods: readonly Ip[]): Promise<void> {
  await withFirewalld(async firewalld => {
    for (const pod of pods) await firewalld.addSource(zone, sourceOf(pod));
  }, refuse);
}

/** @throws Error naming the first address that the zone does not have */
async function checkSources(zone: string, pods: readonly Ip[]): Promise<void> {
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
async function removeSources(
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

/** With nf_tables it has a table of its own; with iptables it has chains in the table "filter". */
function hasFirewalldRules(socket: NetlinkSocket): boolean {
  return (
    hasChain(socket, { family: 'inet', name: 'firewalld' }, 'filter_FORWARD') ||
    hasChain(socket, { family: 'ip', name: 'filter' }, 'FORWARD_ZONES')
  );
}

/** As the reference writes it: firewalld compares strings. */
function sourceOf(pod: Ip): string {
  return renderCidr(hostCidr(pod));
}

function refuse(): never {
  throw new Error('Cannot query firewalld: it is not running, or not on the system bus');
}

/** Where the system bus listens unless `DBUS_SYSTEM_BUS_ADDRESS` says otherwise (D-Bus specification, "System message bus"). */
const DEFAULT_ADDRESS = 'unix:path=/var/run/dbus/system_bus_socket';
const NAME = 'org.fedoraproject.FirewallD1';
/** firewalld takes tens of milliseconds for a change, and longer during a reload. */
const REPLY_DEADLINE_MS = 15_000;

/**
 * Runs a function while the bus is open, or another one when firewalld is not running. Does not start firewalld.
 * @throws Error with firewalld's message
 */
async function withFirewalld<T>(
  work: (firewalld: ReturnType<typeof speakTo>) => Promise<T>,
  otherwise: () => T | Promise<T>,
): Promise<T> {
  const bus = await openBus();
  if (bus === undefined) return otherwise();
  try {
    // Any other call would make the bus start firewalld.
    const isRunning = await bus.invokeDbus<boolean>({ member: 'NameHasOwner', signature: 's', body: [NAME] });
    return isRunning === true ? await work(speakTo(bus)) : await otherwise();
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
    const end = (result: 'open' | Error): void => {
      clearTimeout(deadline);
      resolve(result);
    };
    bus.connection.once('connect', () => end('open'));
    // Kept for the lifetime of the connection: without a listener, an error would end the process.
    bus.connection.on('error', end);
  });
  if (outcome === 'open') return bus;
  bus.connection.end();
  const { code } = outcome as { code?: unknown };
  if (code === 'ENOENT' || code === 'ECONNREFUSED') return undefined;
  throw new Error(`Cannot open the system bus at "${busAddress}": ${outcome.message}`, { cause: outcome });
}

/** The requests to firewalld. Zones hold addresses: packets from those addresses are subject to the zone's rules. */
function speakTo(bus: MessageBus) {
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
    /** Same as: `firewall-cmd --get-zones` */
    listZones: () => call<string[]>('list zones', 'getZones', []),
    /** The zone that has the source; undefined if none has. Same as: `firewall-cmd --get-zone-of-source <source>` */
    findZone: async (source: string) =>
      (await call<string>(`find the zone of ${source}`, 'getZoneOfSource', [source])) || undefined,
    /** Ignored if the zone already has it. Same as: `firewall-cmd --zone <zone> --add-source <source>` */
    addSource: (zone: string, source: string) =>
      call<void>(`add ${words(zone, source)}`, 'addSource', [zone, source], 'ZONE_ALREADY_SET'),
    /** Ignored if missing. Same as: `firewall-cmd --zone <zone> --remove-source <source>` */
    removeSource: (zone: string, source: string) =>
      call<void>(`remove ${words(zone, source)}`, 'removeSource', [zone, source], 'UNKNOWN_SOURCE'),
  };
}

/** Names of chains and zones, as configured. */
export type Names = Pick<FirewallOptions, 'adminChain' | 'zone'>;

/**
 * The packet filters to inform when no backend is configured: iptables in any case, since Docker, ufw or an operator may set its
 * policy to DROP at any later time, and firewalld if it is running.
 */
export async function findOthers(socket: NetlinkSocket, pods: readonly Ip[]): Promise<Other[]> {
  if (pods.length === 0) return [];
  const iptables = wantedTables(socket, pods).length > 0;
  return [
    ...(iptables ? (['iptables'] as const) : []),
    ...((await isFirewalldRunning(socket)) ? (['firewalld'] as const) : []),
  ];
}

/**
 * Those of {@link findOthers} that CHECK looks at: an attachment from before iptables was installed lacks nothing as long as that drops
 * nothing.
 */
export async function findOthersToCheck(
  socket: NetlinkSocket,
  pods: readonly Ip[],
  owner: FilterOwner,
): Promise<Other[]> {
  const others = await findOthers(socket, pods);
  const isNeeded =
    !isKnown(socket, pods) ||
    findClaimsIn(socket, [owner]).iptables.length > 0 ||
    doesIptablesDrop(socket, pods);
  return others.filter(other => other !== 'iptables' || isNeeded);
}

/** Rejects unknown names and missing packet filters, before anything is changed. */
export async function requireOthers(
  socket: NetlinkSocket,
  { others, isNamed, pods }: AccessPlan,
  { zone }: Names,
): Promise<void> {
  if (isNamed && others.includes('iptables')) requireIptables(socket, pods);
  if (others.includes('firewalld')) await requireZone(zone);
}

/**
 * Makes the other packet filters accept the pod's packets. Call after nf_tables has recorded that they will know the pod.
 * @param which `old` if `admit` has already informed those in nf_tables
 */
export async function tellOthers(
  socket: NetlinkSocket,
  plan: AccessPlan,
  { adminChain, zone }: Names,
  which: WhichTables = 'all',
): Promise<void> {
  if (plan.others.includes('iptables')) ensureIptables(socket, plan, adminChain, which);
  if (plan.others.includes('firewalld')) await addSources(zone, plan.pods);
}

/** @throws Error naming what one of them lacks */
export async function checkOthers(
  socket: NetlinkSocket,
  plan: AccessPlan,
  { adminChain, zone }: Names,
): Promise<void> {
  if (plan.others.includes('iptables')) checkIptables(socket, plan, adminChain);
  if (plan.others.includes('firewalld')) await checkSources(zone, plan.pods);
}

/**
 * Whether the reference has told another packet filter everything about the pods: then their packets pass although nf_tables does
 * not know them. The reference has no rules in nf_tables, so this is all that it may have done.
 */
export async function isToldByReference(
  socket: NetlinkSocket,
  plan: AccessPlan,
  { adminChain, zone }: Names,
): Promise<boolean> {
  if (isKnown(socket, plan.pods)) return false;
  const hasZones = plan.others.includes('firewalld');
  if (!hasZones && !hasReferenceRules(socket, plan.pods)) return false;
  try {
    if (hasZones) await checkSources(zone, plan.pods);
    // Its rules are the only ones that enforce the policy.
    else checkIptables(socket, { ...plan, isNamed: true, asReference: true }, adminChain);
    return true;
  } catch {
    return false;
  }
}

/** The next plan for the same pod: whatever it needs is kept. */
interface Next {
  readonly plan: AccessPlan;
  readonly names: Names;
}

/**
 * Makes them forget attachments. Call before nf_tables forgets them, so that a failure can be retried.
 * @throws Error when the next plan would take an address from another zone
 */
export async function haveOthersForget(
  socket: NetlinkSocket,
  owners: readonly FilterOwner[],
  next?: Next,
): Promise<void> {
  const { plan, names } = next ?? {};
  const { iptables, firewalld } = findClaimsIn(socket, owners);
  releaseIptables(socket, iptables, plan?.others.includes('iptables') ? plan : undefined);
  const sources = firewalld.map(({ pod }) => pod);
  const kept = plan?.others.includes('firewalld') ? plan.pods : [];
  const isKept = (zone: string, pod: Ip) => zone === names?.zone && kept.some(one => sameIp(one, pod));
  // While firewalld is asked, another attachment may get the address, and tell it.
  await removeSources(
    sources,
    (zone, pod) => !isKept(zone, pod) && isToldFor(socket, 'firewalld', owners, pod),
  );
  if (names && kept.length) await requireUnclaimed(names.zone, kept);
}

/** Makes them forget addresses that the reference told them about. */
export async function forgetForeign(socket: NetlinkSocket, pods: readonly Ip[], zone: string): Promise<void> {
  releaseForeignRules(socket, pods);
  if (hasFirewalldRules(socket)) await removeSources(pods, found => found === zone);
}
