// How are the addresses of an attachment added to a zone of firewalld, removed from it and checked?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { IP_BITS, type Ip, renderIp } from '../../../src/net/ip.ts';
import { hasChain } from '../../../src/netlink/nft/chain.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { withFirewalld } from './bus.ts';

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
