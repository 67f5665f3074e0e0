// How do the addresses of an attachment get into a zone of firewalld, out of it, and are they there?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { IP_BITS, type Ip, renderIp } from '../../../src/net/ip.ts';
import { hasChain } from '../../../src/netlink/nft/policy.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { withFirewalld } from './bus.ts';

/**
 * Whether firewalld rejects what it was not told of. Its rules tell, at the cost of two requests: only where they are is
 * the bus asked whether firewalld itself is.
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
 * Makes sure that firewalld runs and has the zone.
 * @throws CniError 7 for an unknown zone, Error when firewalld does not run
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

/** @throws Error naming the first address that somebody gave to another zone */
export async function requireUnclaimed(zone: string, pods: readonly Ip[]): Promise<void> {
  await withFirewalld(async firewalld => {
    for (const pod of pods) {
      const found = await firewalld.findZone(sourceOf(pod));
      if (found === undefined || found === zone) continue;
      throw new Error(
        `Cannot add source ${sourceOf(pod)} to zone "${zone}" of firewalld: zone "${found}" has it`,
      );
    }
  }, refuse);
}

/** @throws Error with firewalld's words */
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
 * Takes addresses out of the zones that have them. Where firewalld does not run, what it was told went with it.
 * @param isMeant leaves an address where it is when it says no to its zone
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

/** Takes out addresses that the reference added to the zone, if there is a firewalld at all. */
export async function removeForeignSources(
  socket: NetlinkSocket,
  pods: readonly Ip[],
  zone: string,
): Promise<void> {
  if (hasFirewalldRules(socket)) await removeSources(pods, found => found === zone);
}

/** With nf_tables it has a table of its own, with iptables chains in the table "filter". */
function hasFirewalldRules(socket: NetlinkSocket): boolean {
  return (
    hasChain(socket, { table: { family: 'inet', name: 'firewalld' }, chain: 'filter_FORWARD' }) ||
    hasChain(socket, { table: { family: 'ip', name: 'filter' }, chain: 'FORWARD_ZONES' })
  );
}

/** As the reference writes it: firewalld compares texts. */
function sourceOf(pod: Ip): string {
  return `${renderIp(pod)}/${IP_BITS[pod.family]}`;
}

function refuse(): never {
  throw new Error('Cannot ask firewalld: it does not run, or is not on the system bus');
}
