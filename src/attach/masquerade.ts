// How is masquerading of an attachment started and stopped in nf_tables, by our rules and by the reference's?

import type { AttachmentId } from '../cni/attachment.ts';
import { type Cidr, findIp, type Ip, ipToBytes, netmaskOf, networkOf, renderIp } from '../net/ip.ts';
import type { Request } from '../netlink/codec.ts';
import { addEntries, deletePlaces, type Entry, findElements } from '../netlink/nft/element.ts';
import { goto } from '../netlink/nft/expr.ts';
import { commitAfterReading, type Table } from '../netlink/nft/message.ts';
import {
  changeOwned,
  elementProblem,
  findOwned,
  findOwnedProblems,
  placeOf,
  restoreSkeleton,
  type Skeleton,
  sweepOwned,
} from '../netlink/nft/skeleton.ts';
import {
  deleteRule,
  hasTable,
  listRules,
  NF_IP_PRI_FILTER,
  type NftSet,
  OWN_NAT,
  type Rule,
} from '../netlink/nft/table.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { type Call, isStaleNote, type KeptAttachments } from '../plugin/define.ts';
import { confirmAll } from '../plugin/steps.ts';
import {
  attachmentOf,
  type ChainOwner,
  type FormerOwner,
  findFormerOwners,
  noteOf,
  refuserFor,
} from './owner.ts';

/** An address of a container with its subnet, and the source that its packets get outside that subnet. */
export interface Masqueraded extends Cidr {
  /** Undefined for an address of the outgoing interface. */
  readonly source?: Ip;
}

export interface MasqConf {
  readonly ipMasqSource?: readonly string[] | undefined;
  readonly ipMasqBackend?: string | undefined;
}

/** The addresses with the configured sources of their families. */
export function withSources({ ipMasqSource = [] }: MasqConf, cidrs: readonly Cidr[]): Masqueraded[] {
  const sources = ipMasqSource.flatMap(text => findIp(text) ?? []);
  return cidrs.map(cidr => {
    const source = sources.find(({ family }) => family === cidr.ip.family);
    return source ? { ...cidr, source } : cidr;
  });
}

/** Their names, the default first. */
const MASQ_BACKENDS = ['nftables', 'iptables'] as const;

export type MasqBackend = (typeof MASQ_BACKENDS)[number];

/** The packet filter of that name; the default without a name or for a name that {@link findMasqProblem} refuses. */
export function backendOf({ ipMasqBackend }: { readonly ipMasqBackend?: string | undefined }): MasqBackend {
  return MASQ_BACKENDS.find(name => name === ipMasqBackend) ?? MASQ_BACKENDS[0];
}

export function findMasqProblem(conf: MasqConf): string | undefined {
  const { ipMasqSource = [], ipMasqBackend } = conf;
  if (ipMasqBackend !== undefined && !MASQ_BACKENDS.some(name => name === ipMasqBackend))
    return `"ipMasqBackend" is "${ipMasqBackend}", expected "${MASQ_BACKENDS.join('" or "')}"`;
  const bad = ipMasqSource.find(text => findIp(text) === undefined);
  if (bad !== undefined) return `"ipMasqSource" holds ${JSON.stringify(bad)}, expected an address`;
  const families = ipMasqSource.flatMap(text => findIp(text)?.family ?? []);
  if (new Set(families).size < families.length) return '"ipMasqSource" holds two addresses of one IP version';
  if (families.length === 0 || backendOf(conf) === 'nftables') return undefined;
  return '"ipMasqSource" needs "ipMasqBackend": "nftables"';
}

/**
 * Masquerades what the addresses send beyond their subnets, in one transaction. Elements that a dead attachment left for
 * the same addresses are reassigned to this one.
 * @throws CniError 101 when one of the addresses belongs to another attachment that is alive
 */
export function ensureMasquerade(call: Call, cidrs: readonly Masqueraded[]): void {
  const refuse = () => refuserFor(call)(findOtherOwners(call, cidrs));
  ensureEntries(call.hostNft, cidrs, entriesFor(call, cidrs), refuse);
}

/** Writes rules again that others have changed, before {@link ensureMasquerade} adds what is missing. */
export function restoreRules(socket: NetlinkSocket, cidrs: readonly Masqueraded[]): void {
  restoreSkeleton(socket, planSkeleton(cidrs));
}

/** Stops what leaves the addresses' subnets without a connection, where another packet filter masquerades. */
export function ensureNoStrays(call: Call, cidrs: readonly Masqueraded[]): void {
  const wanted = entriesFor(call, cidrs).filter(({ set }) => set !== PODS[4] && set !== PODS[6]);
  ensureEntries(call.hostNft, cidrs, wanted);
}

function ensureEntries(
  socket: NetlinkSocket,
  cidrs: readonly Masqueraded[],
  wanted: readonly Entry[],
  refuse = () => {},
): void {
  changeOwned(socket, [planSkeleton(cidrs)], () => {
    refuse();
    const found = findElements(socket, wanted.map(placeOf));
    const isWrong = (entry: Entry, i: number) => elementProblem(entry, found[i]) !== undefined;
    const stale = wanted.filter((entry, i) => found[i] && isWrong(entry, i));
    return [...deletePlaces(stale.map(placeOf)), ...addEntries(wanted.filter(isWrong))];
  });
}

/** The other attachments that own elements for the addresses. */
export function findOtherOwners(call: Call, cidrs: readonly Masqueraded[]): FormerOwner[] {
  const ips = cidrs.map(({ ip }) => ip);
  return findFormerOwners(call.hostNft, PODS, ips, noteOf(attachmentOf(call)));
}

/**
 * Stops masquerading an attachment. Its elements carry its name, so nothing else is needed to find them, but scanning all
 * elements takes longer the more containers there are.
 * @param known its addresses; when all of their elements exist, the sets are not scanned
 */
export function removeMasquerade(call: Call, known: readonly Masqueraded[] = []): void {
  const { hostNft: socket } = call;
  const note = noteOf(attachmentOf(call));
  const places = entriesFor(call, known).map(placeOf);
  let isKnown = places.length > 0;
  const removeKnown = (): Request[] => {
    isKnown = findOwned(socket, places, note).length === places.length;
    return isKnown ? deletePlaces(places) : [];
  };
  if (isKnown) commitAfterReading(socket, removeKnown);
  if (!isKnown) sweepOwned(socket, SETS, one => one === note);
}

/** Stops masquerading the network's attachments that GC does not keep. */
export function removeStaleMasquerade({ hostNft, network }: Call, kept: KeptAttachments): void {
  sweepOwned(hostNft, SETS, note => isStaleNote(note, network, kept));
}

/** @throws Error naming what is missing of the attachment's masquerading, or of the rules behind it */
export function checkMasquerade(call: Call, cidrs: readonly Masqueraded[]): void {
  const problems = findOwnedProblems(call.hostNft, [planSkeleton(cidrs)], entriesFor(call, cidrs));
  confirmAll('masquerading', problems);
}

function entriesFor(call: Call, cidrs: readonly Masqueraded[]): Entry[] {
  const comment = noteOf(attachmentOf(call));
  return cidrs.flatMap(cidr => {
    const { ip } = cidr;
    return [
      { set: LOCAL[ip.family], element: { key: [ip, networkOf(cidr)], comment } },
      { set: PODS[ip.family], element: { key: [ip], data: goto(chainName(cidr)), comment } },
      { set: STRAYS[ip.family], element: { key: [ip], data: goto(strayChain(cidr)), comment } },
    ];
  });
}

/** Our own table, which contains everything below. */
export const TABLE: Table = { family: 'inet', name: 'catena_masquerade' };

/** A map from a container address to a chain, for each family. */
function verdictsOf(ipv4: string, ipv6: string): Readonly<Record<4 | 6, NftSet>> {
  const map = { table: TABLE, data: 'verdict' } as const;
  return {
    4: { ...map, name: ipv4, key: ['ipv4_addr'] },
    6: { ...map, name: ipv6, key: ['ipv6_addr'] },
  };
}

/** To the chain for its prefix length and source. */
const PODS = verdictsOf('pods4', 'pods6');

/** A container address and its own subnet: destinations for which the source address is kept. */
const LOCAL: Readonly<Record<4 | 6, NftSet>> = {
  4: { table: TABLE, name: 'local4', key: ['ipv4_addr', 'ipv4_addr'] },
  6: { table: TABLE, name: 'local6', key: ['ipv6_addr', 'ipv6_addr'] },
};

/** To the chain that stops what connection tracking cannot translate. */
const STRAYS = verdictsOf('strays4', 'strays6');

/** Every set and map; their elements belong to one attachment each. */
export const SETS: readonly NftSet[] = [PODS[4], PODS[6], LOCAL[4], LOCAL[6], STRAYS[4], STRAYS[6]];

/**
 * The table, with the chains that subnets of these prefix lengths need. `admin` belongs to the operator: it is evaluated first, its
 * rules are kept, and what it accepts keeps its source.
 */
export function planSkeleton(cidrs: readonly Masqueraded[]): Skeleton {
  const subnets = new Map(
    cidrs.flatMap(cidr => [
      [chainName(cidr), rulesFor(cidr, translationOf(cidr))],
      [strayChain(cidr), rulesFor(cidr, 'drop')],
    ]),
  );
  return {
    table: TABLE,
    comment: 'catena: masquerading of bridge networks',
    version: 2,
    sets: SETS,
    chains: [
      ...[...subnets].map(([name, rules]) => ({ name, rules })),
      { name: 'admin' },
      {
        name: 'forward',
        base: { type: 'filter', hook: 'forward', priority: NF_IP_PRI_FILTER },
        // A packet of no connection, such as the reset of one that was forgotten, is never translated, and would leave with the
        // container's address.
        rules: ['ct state invalid ip saddr vmap @strays4', 'ct state invalid ip6 saddr vmap @strays6'],
      },
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: OWN_NAT.src },
        rules: ['jump admin', 'ip saddr vmap @pods4', 'ip6 saddr vmap @pods6'],
      },
    ],
  };
}

/** Rules for destinations for which the source address is kept, then the one for all others. */
function rulesFor(cidr: Cidr, otherwise: string): string[] {
  const netmask = renderIp(netmaskOf(cidr));
  return cidr.ip.family === 4
    ? [`ip saddr . ip daddr & ${netmask} @local4 return`, 'ip daddr 224.0.0.0/4 return', otherwise]
    : [`ip6 saddr . ip6 daddr & ${netmask} @local6 return`, 'ip6 daddr ff00::/8 return', otherwise];
}

function translationOf({ ip, source }: Masqueraded): string {
  return source ? `snat ${ip.family === 4 ? 'ip' : 'ip6'} to ${renderIp(source)}` : 'masquerade';
}

function strayChain({ ip, prefix }: Cidr): string {
  return `stray${ip.family}_${prefix}`;
}

function chainName({ ip, prefix, source }: Masqueraded): string {
  if (source) return `snat${ip.family}_${prefix}_${Buffer.from(ipToBytes(source)).toString('hex')}`;
  return `masq${ip.family}_${prefix}`;
}

const REFERENCE_TABLE: Table = { family: 'inet', name: 'cni_plugins_masquerade' };
/** One rule per address, with a comment that starts with the keys of network and attachment. */
const CHAIN = 'masq_checks';

/** Removes the rules that the reference made for an attachment. Table and chains remain, as after the reference's DEL. */
export function removeReferenceMasquerade(call: Call): void {
  removeRules(call.hostNft, attachmentKey(attachmentOf(call)));
}

/** Removes the rules that the reference made for attachments of the network that GC does not keep. */
export function removeStaleReferenceMasquerade({ hostNft, network }: Call, kept: KeptAttachments): void {
  const isKept = (comment = '') => kept.some(one => comment.startsWith(attachmentKey(one)));
  removeRules(hostNft, `${networkKey(network)}-`, ({ comment }) => !isKept(comment));
}

export function countReferenceRules(call: Call): number {
  return findRules(call.hostNft, attachmentKey(attachmentOf(call))).length;
}

function removeRules(socket: NetlinkSocket, key: string, isGone: (rule: Rule) => boolean = () => true): void {
  if (!hasTable(socket, REFERENCE_TABLE)) return;
  commitAfterReading(socket, () => {
    const gone = findRules(socket, key).filter(isGone);
    return gone.map(({ handle }) => deleteRule(REFERENCE_TABLE, CHAIN, handle));
  });
}

function findRules(socket: NetlinkSocket, key: string): Rule[] {
  return listRules(socket, REFERENCE_TABLE, CHAIN).filter(({ comment }) => comment?.startsWith(key));
}

export function attachmentChain({ network, containerId }: ChainOwner): string {
  return `CNI-${hash(network + containerId).slice(0, 24)}`;
}

/** The prefix of the comment of every nftables rule of a network. */
export function networkKey(network: string): string {
  return hash(network).slice(0, 16);
}

/** The prefix of the comment of every nftables rule of an attachment. */
export function attachmentKey({ network, containerId, ifname }: AttachmentId): string {
  return `${networkKey(network)}-${hash(`${ifname}:${containerId}`).slice(0, 16)}`;
}

function hash(text: string): string {
  return new Bun.CryptoHasher('sha512').update(text).digest('hex');
}
