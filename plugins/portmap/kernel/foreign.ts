// Which containers that our own sets do not record hold a host port?
import type { IsGone, RefuseLiving } from '../../../src/attach/owner.ts';
import { findOwner, shortId } from '../../../src/cni/attachment.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { defined } from '../../../src/cni/json.ts';
import { cidrContains, FAMILIES, type Family, type Ip, sameIp } from '../../../src/net/ip.ts';
import { decodeNatRule, listLegacyNat, listNftNat, natTable } from '../../../src/netlink/iptables/nat.ts';
import type { NatRule } from '../../../src/netlink/iptables/nat-rule.ts';
import { listRules, listTables } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Claim, Owner } from '../elements.ts';
import { type HostPort, PROTOCOLS, renderHostPort } from '../plan.ts';
import { type ChainOwner, dnatChain, hostportTable, ownerIn, SHARED, soleOwner } from '../reference-names.ts';

/** Codes of our own (100 and up are free for plugins); listed in the README. */
const PortmapCode = {
  /** Another container holds a host port. */
  portTaken: 100,
} as const;

/** The holder of a port, for the error message. */
export interface Rival extends HostPort {
  /** Human-readable: `container "c1" of network "podnet"`. */
  readonly holder: string;
}

/** A container in the reference's own table, and the address that the rule leads to. */
export interface Stranger {
  readonly containerId: string;
  readonly pod: Ip;
}

/** What the reference has of containers that no longer exist, and what others may have now. */
export interface Dead {
  readonly chains: readonly ChainOwner[];
  readonly strangers: readonly Stranger[];
}

interface Judge {
  readonly refuseLiving: RefuseLiving;
  readonly isGone: IsGone;
}

/**
 * Rejects host ports that the reference plugin forwards to another container on an overlapping address, with either packet
 * filter. Reads the reference's rules of all containers, if there are any. Rules with conditions do not conflict.
 * @throws CniError 100 naming the container, 101 when it has the pod's address and is alive
 */
export function refuseForeign(
  socket: NetlinkSocket,
  claims: readonly Claim[],
  outdated: readonly Owner[],
  judge: Judge,
): Dead {
  const dead = { chains: [] as ChainOwner[], strangers: [] as Stranger[] };
  const own = new Set(
    outdated
      .flatMap(({ attachment }) => (attachment ? [attachment, soleOwner(attachment)] : []))
      .map(dnatChain),
  );
  const ids = new Set(outdated.flatMap(({ attachment }) => attachment?.containerId ?? []));
  const tables = listTables(socket);
  for (const family of FAMILIES) {
    const wanted = claims.filter(claim => claim.family === family && claim.condition === '');
    if (wanted.length === 0) continue;
    const inNft = (chain: string) => (tables.has(natTable(family)) ? listNftNat(socket, family, chain) : []);
    const refuseAll = (held: readonly Held[]) => refuseHeldBy(wanted, held, judge, dead);
    refuseAll(chainsThatHold(wanted, { own, ids }, inNft(SHARED.dnat), inNft));
    if (tables.has(hostportTable(family))) refuseAll(hostportRules(socket, family, ids));
    const legacy = listLegacyNat(family);
    const inLegacy = (chain: string) => legacy.filter(rule => rule.chain === chain);
    refuseAll(chainsThatHold(wanted, { own, ids }, inLegacy(SHARED.dnat), inLegacy));
  }
  return dead;
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
  /** Set if the rules name it. */
  readonly owner: ChainOwner | undefined;
  /** Set if they name nothing else. */
  readonly containerId?: string;
  readonly rule: NatRule;
}

function refuseHeldBy(
  wanted: readonly Claim[],
  held: readonly Held[],
  { refuseLiving, isGone }: Judge,
  dead: { readonly chains: ChainOwner[]; readonly strangers: Stranger[] },
): void {
  for (const { holder, owner, containerId, rule } of held) {
    if (owner && dead.chains.includes(owner)) continue;
    const claim = wanted.find(one => excludes(one, rule));
    if (claim === undefined) continue;
    if (rule.to && sameIp(rule.to, claim.pod)) {
      // The previous holder of the pod's address is gone, unless another network gave the same address to a live pod.
      refuseLiving([{ ip: claim.pod, owner }]);
      continue;
    }
    if (rule.to && (owner || containerId !== undefined) && isGone(owner, [rule.to])) {
      if (owner) dead.chains.push(owner);
      else if (containerId !== undefined) dead.strangers.push({ containerId, pod: rule.to });
      continue;
    }
    const { protocol, port } = claim;
    const ip = rule.destination?.not ? undefined : rule.destination?.cidr.ip;
    throwTaken(claim, { holder, protocol, port, ...defined({ ip }) }, 'its DEL releases the port');
  }
}

/** The forwarding rules of containers with an entry that mentions one of the ports. */
function chainsThatHold(
  wanted: readonly Claim[],
  { own, ids }: { readonly own: ReadonlySet<string>; readonly ids: ReadonlySet<string> },
  entries: readonly NatRule[],
  rulesOf: (chain: string) => readonly NatRule[],
): Held[] {
  const holders = new Map<string, Pick<Held, 'holder' | 'owner'>>();
  for (const { target, comment, source, destination, more, protocol, ports = [] } of entries) {
    // Containers with conditions of their own may share a port.
    if (own.has(target) || more || source || destination) continue;
    // The container's other networks may have been given the same ports.
    if (ids.has(ownerIn(comment)?.containerId ?? '')) continue;
    const isWanted = wanted.some(one => PROTOCOLS[one.protocol] === protocol && ports.includes(one.port));
    if (isWanted) {
      const holder = holderIn(comment) ?? `chain "${target}"`;
      holders.set(target, { holder, owner: ownerIn(comment) });
    }
  }
  return [...holders].flatMap(([chain, held]) => rulesOf(chain).map(rule => ({ ...held, rule })));
}

/** Rules of the reference's own table, which name the container only. */
function hostportRules(socket: NetlinkSocket, family: Family, own: ReadonlySet<string>): Held[] {
  return listRules(socket, hostportTable(family), 'hostports').flatMap(rule => {
    const { comment = '' } = rule;
    if (own.has(comment)) return [];
    const holder = `container "${shortId(comment)}"`;
    return { holder, owner: undefined, containerId: comment, rule: decodeNatRule(family, rule) };
  });
}

function excludes({ protocol, port, ip }: Claim, rule: NatRule): boolean {
  if (rule.target !== 'DNAT' || rule.protocol !== PROTOCOLS[protocol] || !rule.ports?.includes(port))
    return false;
  const { destination } = rule;
  return !(ip && destination) || cidrContains(destination.cidr, ip) !== destination.not;
}

/** The attachment that a comment of ours, or of the reference's portmap, names. */
export function holderIn(comment: string | undefined): string | undefined {
  const owner = findOwner(comment) ?? ownerIn(comment);
  return owner && `container "${shortId(owner.containerId)}" of network "${owner.network}"`;
}
