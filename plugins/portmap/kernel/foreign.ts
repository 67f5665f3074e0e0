// Who holds a host port, among those of whom our own sets know nothing?
import { CniError } from '../../../src/cni/errors.ts';
import { sameIp } from '../../../src/net/ip.ts';
import { listLegacyNat } from '../../../src/netlink/iptables/legacy.ts';
import type { Family, NatRule } from '../../../src/netlink/iptables/nat-rule.ts';
import { decodeNatRule, listNftNat, natTable } from '../../../src/netlink/iptables/nft.ts';
import { listRules } from '../../../src/netlink/nft/rule.ts';
import { listTables } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Claim, Owner } from '../elements.ts';
import { type HostPort, PROTOCOLS, renderHostPort } from '../plan.ts';
import { dnatChain, hostportTable, ownerIn, SHARED, soleOwner } from '../reference-names.ts';

/** Codes of our own (100 and up are free for plugins); listed in the README. */
const PortmapCode = {
  /** Somebody else holds a host port. */
  portTaken: 100,
} as const;

/** What the error says of a holder's own port. */
export interface Rival extends HostPort {
  /** In words: `container "c1" of network "podnet"`. */
  readonly holder: string;
}

/**
 * Refuses host ports that the reference plugin leads to another container on an overlapping address, with either packet
 * filter. Reads its rules for all containers, where there are any. Those with conditions are let pass.
 * @throws CniError 100 naming the container
 */
export function refuseForeign(
  socket: NetlinkSocket,
  claims: readonly Claim[],
  outdated: readonly Owner[],
): void {
  const own = new Set(
    outdated
      .flatMap(({ attachment }) => (attachment ? [attachment, soleOwner(attachment)] : []))
      .map(dnatChain),
  );
  const ids = new Set(outdated.flatMap(({ attachment }) => attachment?.containerId ?? []));
  const tables = listTables(socket);
  for (const family of [4, 6] as const) {
    const wanted = claims.filter(claim => claim.family === family && claim.condition === '');
    if (wanted.length === 0) continue;
    const inNft = (chain: string) => (tables.has(natTable(family)) ? listNftNat(socket, family, chain) : []);
    refuseHeldBy(wanted, chainsThatHold(wanted, { own, ids }, inNft(SHARED.dnat), inNft));
    if (tables.has(hostportTable(family))) refuseHeldBy(wanted, hostportRules(socket, family, ids));
    const legacy = listLegacyNat(family);
    const inLegacy = (chain: string) => legacy.filter(rule => rule.chain === chain);
    refuseHeldBy(wanted, chainsThatHold(wanted, { own, ids }, inLegacy(SHARED.dnat), inLegacy));
  }
}

/** @throws CniError 100 */
export function throwTaken(wanted: HostPort, { holder, ...held }: Rival, details: string): never {
  throw new CniError(
    PortmapCode.portTaken,
    `Cannot map host port ${renderHostPort(wanted)}: ${holder} holds ${renderHostPort(held)}`,
    { details },
  );
}

interface Held {
  readonly holder: string;
  readonly rule: NatRule;
}

function refuseHeldBy(wanted: readonly Claim[], held: readonly Held[]): void {
  for (const { holder, rule } of held) {
    const claim = wanted.find(one => excludes(one, rule));
    // Whoever had the pod's address before is gone.
    if (claim === undefined || (rule.to && sameIp(rule.to, claim.pod))) continue;
    const { protocol, port } = claim;
    const ip = rule.destination?.cidr.ip;
    throwTaken(claim, { holder, protocol, port, ...(ip ? { ip } : {}) }, 'its DEL releases the port');
  }
}

/** The forwarding rules of containers of which an entry mentions one of the ports. */
function chainsThatHold(
  wanted: readonly Claim[],
  { own, ids }: { readonly own: ReadonlySet<string>; readonly ids: ReadonlySet<string> },
  entries: readonly NatRule[],
  rulesOf: (chain: string) => readonly NatRule[],
): Held[] {
  const holders = new Map<string, string>();
  for (const { target, comment, source, destination, more, protocol, ports = [] } of entries) {
    // With conditions of their own, containers may share a port.
    if (own.has(target) || more || source || destination) continue;
    // The container's other networks may be told of the same ports.
    if (ids.has(ownerIn(comment)?.containerId ?? '')) continue;
    const isWanted = wanted.some(one => PROTOCOLS[one.protocol] === protocol && ports.includes(one.port));
    if (isWanted) holders.set(target, holderIn(comment) ?? `chain "${target}"`);
  }
  return [...holders].flatMap(([chain, holder]) => rulesOf(chain).map(rule => ({ holder, rule })));
}

/** Rules of the reference's own table, which name the container only. */
function hostportRules(socket: NetlinkSocket, family: Family, own: ReadonlySet<string>): Held[] {
  return listRules(socket, hostportTable(family), 'hostports').flatMap(rule => {
    const { comment = '' } = rule;
    return own.has(comment) ? [] : { holder: `container "${comment}"`, rule: decodeNatRule(family, rule) };
  });
}

function excludes({ protocol, port, ip }: Claim, rule: NatRule): boolean {
  if (rule.target !== 'DNAT' || rule.protocol !== PROTOCOLS[protocol] || !rule.ports?.includes(port))
    return false;
  return ip === undefined || rule.destination === undefined || sameIp(ip, rule.destination.cidr.ip);
}

function holderIn(comment: string | undefined): string | undefined {
  const owner = ownerIn(comment);
  return owner && `container "${owner.containerId}" of network "${owner.network}"`;
}
