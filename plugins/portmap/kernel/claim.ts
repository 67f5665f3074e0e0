// How are the elements of an attachment put into the kernel, and which existing ones conflict with them?

import {
  type ChainOwner,
  findFormerOwners,
  type IsGone,
  type RefuseLiving,
} from '../../../src/attach/owner.ts';
import { findOwner, shortId } from '../../../src/cni/attachment.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { defined } from '../../../src/cni/json.ts';
import { cidrContains, FAMILIES, type Family, type Ip, sameIp } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import {
  decodeNatRule,
  listLegacyNat,
  listNftNat,
  type NatRule,
  natTable,
} from '../../../src/netlink/iptables/nat.ts';
import {
  addEntries,
  type Element,
  type ElementPlace,
  type Entry,
  findElements,
  listElements,
} from '../../../src/netlink/nft/element.ts';
import { decide, jump, matchFamily, type Verdict } from '../../../src/netlink/nft/expr.ts';
import { commitAfterReading, renderTable, tryOut } from '../../../src/netlink/nft/message.ts';
import {
  changeOwned,
  elementProblem,
  isRule,
  placeOf,
  restoreSkeleton,
  skeletonChanges,
  skeletonProblems,
  tableMissing,
} from '../../../src/netlink/nft/skeleton.ts';
import {
  addRule,
  COMMENT_MAX_LENGTH,
  deleteChain,
  deleteRule,
  deleteSet,
  flushChain,
  listChains,
  listRules,
  listTables,
  type NftSet,
  type Rule,
  renderFields,
} from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { confirmAll } from '../../../src/plugin/steps.ts';
import { dnatChain, hostportTable, ownerIn, SHARED, soleOwner } from '../iptables-rules.ts';
import {
  type Claim,
  type FamilyPlan,
  type HostPort,
  isNoteOfContainer,
  type Means,
  type Owner,
  ownerOfNote,
  PROTOCOLS,
  placeName,
  planClaims,
  planElements,
  renderHostPort,
  takenPlace,
} from '../plan.ts';
import {
  askingChain,
  type Conditions,
  conditionalSets,
  findConditionalSet,
  planSkeleton,
  SETS,
  TABLE,
  whenChain,
} from '../sets.ts';
import { chainEntriesOf, chainsOf, forwardChanges, isChainThere } from './iptables.ts';
import {
  countedPlaces,
  countTaken,
  findClaims,
  listHostIps,
  planSuccessors,
  type Removal,
  removalOf,
  transferOwnership,
} from './release.ts';

/**
 * The changes that add missing condition rules and replace wrong ones. Reads the rules of all conditions in use: one or few per
 * network.
 */
function askingChanges(socket: NetlinkSocket, conditions: readonly Conditions[]): Request[] {
  return conditions
    .filter(one => !isAsked(socket, one))
    .flatMap(one => [
      ...rulesOf(socket, one).map(rule => deleteRule(TABLE, askingChain(one.family), rule.handle)),
      ...askingRules(one),
    ]);
}

function askingRules(conditions: Conditions): Request[] {
  const { family, text } = conditions;
  const comment = text.length <= COMMENT_MAX_LENGTH ? text : `${text.slice(0, COMMENT_MAX_LENGTH - 3)}...`;
  return expressionsOf(conditions).map(rule => addRule(TABLE, askingChain(family), rule, comment));
}

/** Whether the kernel has exactly the rules that the conditions need. */
function isAsked(socket: NetlinkSocket, conditions: Conditions): boolean {
  const rules = rulesOf(socket, conditions);
  const wanted = expressionsOf(conditions);
  return rules.length === wanted.length && wanted.every((rule, i) => isRule(rule, rules[i]));
}

/** Removes the rules and maps of conditions that no attachment uses. Reads all of them. */
export function sweepConditions(socket: NetlinkSocket): void {
  commitAfterReading(socket, () => {
    const names = listChains(socket, TABLE).map(({ name }) => name);
    return FAMILIES.flatMap(family => {
      const prefix = whenChain({ family, handle: '' });
      const handles = names.filter(name => name.startsWith(prefix)).map(name => name.slice(prefix.length));
      const isUnused = (handle: string) =>
        Object.values(conditionalSets(family, handle)).every(set => listElements(socket, set).length === 0);
      return handles.filter(isUnused).flatMap(handle => removal(socket, family, handle));
    });
  });
}

function removal(socket: NetlinkSocket, family: 4 | 6, handle: string): Request[] {
  const chain = whenChain({ family, handle });
  const asking = askingChain(family);
  return [
    ...rulesOf(socket, { family, handle }).map(rule => deleteRule(TABLE, asking, rule.handle)),
    flushChain(TABLE, chain),
    deleteChain(TABLE, chain),
    ...Object.values(conditionalSets(family, handle)).map(deleteSet),
  ];
}

function rulesOf(socket: NetlinkSocket, conditions: Pick<Conditions, 'family' | 'handle'>): Rule[] {
  const target = whenChain(conditions);
  return listRules(socket, TABLE, askingChain(conditions.family)).filter(({ expressions }) => {
    const last = expressions.at(-1)?.data as { data?: { verdict?: Verdict } } | undefined;
    return last?.data?.verdict?.chain === target;
  });
}

function expressionsOf(conditions: Conditions) {
  // Only packets of the family get here, but nft needs the match to display addresses as addresses.
  const family = matchFamily(conditions.family);
  return conditions.alternatives.map(rule => [...family, ...rule, decide(jump(whenChain(conditions)))]);
}

/** Codes of our own (100 and up are free for plugins); listed in the README. */
const PortmapCode = {
  /** Another container holds a host port. */
  portTaken: 100,
} as const;

/** The holder of a port, for the error message. */
interface Rival extends HostPort {
  /** Human-readable: `container "c1" of network "podnet"`. */
  readonly holder: string;
}

/** A container in the reference's own table, and the address that the rule leads to. */
interface Stranger {
  readonly containerId: string;
  readonly pod: Ip;
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
function refuseForeign(
  socket: NetlinkSocket,
  claims: readonly Claim[],
  outdated: readonly Owner[],
  judge: Judge,
) {
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
function throwTaken(wanted: HostPort, { holder, ...held }: Rival, details: string): never {
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
function holderIn(comment: string | undefined): string | undefined {
  const owner = findOwner(comment) ?? ownerIn(comment);
  return owner && `container "${shortId(owner.containerId)}" of network "${owner.network}"`;
}

export interface WantedPorts {
  readonly owner: Owner;
  readonly plans: readonly FamilyPlan[];
  readonly means: Means;
  /** The conditions that nf_tables evaluates. */
  readonly conditions: readonly Conditions[];
  /** Called before elements of another attachment are treated as stale. */
  readonly refuseLiving: RefuseLiving;
  /** Asked before a port is refused because of another attachment. */
  readonly isGone: IsGone;
}

/** What was removed to make room. */
export interface Claimed {
  readonly gone: readonly Claim[];
  /** Owners whose iptables chains have to be removed as well. */
  readonly chains: readonly ChainOwner[];
  /** Containers whose rules in the reference's own table have to be removed as well. */
  readonly strangers: readonly Stranger[];
}

/** A holder has no rules in iptables: either it is gone, or its ADD has not written them yet. */
export class SuspectError extends Error {
  override readonly name = 'SuspectError';
}

/**
 * Puts everything into the kernel in one transaction: adds the elements of the plan, and removes those of an earlier ADD of this
 * attachment and those of an attachment that had the pod's address before and was never deleted. If iptables forwards, the
 * elements only record who owns the ports.
 * @param isAlone no other ADD is between its claim and its iptables rules
 * @throws CniError 100 when another container holds a host port, 101 when a live attachment has the pod's address; SuspectError
 * when that cannot be decided unless alone
 */
export function claimPorts(socket: NetlinkSocket, wanted: WantedPorts, isAlone: boolean): Claimed {
  const { owner, plans, means, conditions } = wanted;
  const entries = plans.flatMap(plan => planElements(plan, owner, means));
  const claims = plans.flatMap(plan => planClaims(plan, means));
  const skeleton = planSkeleton({ pods: plans.map(({ pod }) => pod), conditions });
  let claimed: Claimed = { gone: [], chains: [], strangers: [] };
  changeOwned(socket, [skeleton], () => {
    const outdated = [owner, ...formerOwners(socket, wanted)];
    const { ghosts, dead, shared } = findHolders(socket, claims, outdated, wanted);
    if (ghosts.length && !isAlone) throw new SuspectError('Cannot tell whether a holder of a port is gone');
    outdated.push(...ghosts, ...dead);
    const taken = new Set(shared.map(placeName));
    const buried = refuseForeign(socket, claims, outdated, wanted);
    const removals = outdated.map(one => removalOf(socket, one));
    const gone = removals.flatMap(one => one.claims);
    const inIptables = outdated.filter((one, i) => hasIptables(one === owner ? claims : [], removals[i]));
    const chains = [...inIptables.flatMap(one => chainsOf(socket, one)), ...buried.chains];
    claimed = { gone, chains, strangers: buried.strangers };
    const own = entries.filter(entry => !taken.has(placeName(placeOf(entry))));
    const kept = new Set(own.map(entry => placeName(placeOf(entry))));
    const freed = (removals[0]?.freed ?? []).filter(place => !kept.has(placeName(place)));
    return [
      ...askingChanges(socket, conditions),
      ...removals.flatMap(({ changes }) => changes),
      // What the attachment no longer asks for passes to other networks of the container, as on DEL.
      ...(removals[0]?.claims.length ? transferOwnership(socket, owner, freed) : []),
      ...addEntries([
        ...own,
        ...plans.flatMap(plan => planSuccessors(plan, claims, owner, taken)),
        ...chainEntriesOf(socket, wanted, outdated),
      ]),
      ...countTaken(socket, claims, gone),
      ...(means.backend === 'nftables'
        ? forwardChanges(
            socket,
            plans.map(({ family }) => family),
          )
        : []),
    ];
  });
  return claimed;
}

/** Writes rules again that others have changed, before {@link claimPorts} adds what is missing. */
export function restoreRules(socket: NetlinkSocket, { plans, conditions }: WantedPorts): void {
  restoreSkeleton(socket, planSkeleton({ pods: plans.map(({ pod }) => pod), conditions }));
}

/**
 * Asks the kernel whether it would accept the skeleton and the conditions, without installing them.
 * @throws NetlinkError naming what it would refuse
 */
export function trySkeleton(socket: NetlinkSocket, conditions: readonly Conditions[]): void {
  const changes = skeletonChanges(planSkeleton({ pods: [], conditions }));
  tryOut(socket, [...changes, ...conditions.flatMap(askingRules)]);
}

/** Whether iptables rules may exist already. New claims count too, since the reference may have left rules for them. */
function hasIptables(come: readonly Claim[], removal: Removal | undefined): boolean {
  return [...come, ...(removal?.claims ?? [])].some(({ backend }) => backend === 'iptables');
}

/**
 * Attachments that had the pod's addresses before and were never deleted.
 * @throws CniError 101 when one of them is alive
 */
function formerOwners(socket: NetlinkSocket, { plans, owner, refuseLiving }: WantedPorts): Owner[] {
  const pods = { 4: SETS[4].pods, 6: SETS[6].pods };
  const ips = plans.map(({ pod }) => pod.ip);
  const former = findFormerOwners(socket, pods, ips, owner.note);
  refuseLiving(former);
  return [...new Set(former.map(one => one.owner))].map(ownerOfNote);
}

/** Attachments that hold a requested port without preventing this one from using it. */
interface Holders {
  /** Stale holders: the iptables chains that forwarded for them no longer exist. */
  readonly ghosts: readonly Owner[];
  /** Attachments whose container no longer exists, although nothing was deleted. */
  readonly dead: readonly Owner[];
  /**
   * Places that another attachment of the same container already holds: a runtime passes its mappings to every network of a
   * container, and the first one keeps them.
   */
  readonly shared: readonly ElementPlace[];
}

/** @throws CniError 100 when another container holds a host port */
function findHolders(
  socket: NetlinkSocket,
  claims: readonly Claim[],
  outdated: readonly Owner[],
  { owner, isGone: isDead }: WantedPorts,
): Holders {
  const ghosts = new Map<string, Owner>();
  const dead = new Map<string, Owner>();
  const shared: ElementPlace[] = [];
  const isGone = (note: string | undefined) =>
    note !== undefined && (ghosts.has(note) || dead.has(note) || outdated.some(one => one.note === note));
  const rivals = FAMILIES.flatMap(family => {
    const own = claims.filter(claim => claim.family === family);
    const hostIps = own.some(({ ip }) => ip === undefined) ? listHostIps(socket, family) : [];
    return own.flatMap(claim => rivalsOf(claim, hostIps).map(rival => ({ claim, rival })));
  });
  const places = rivals.map(({ rival }) => takenPlace(rival));
  for (const [i, holder] of findElements(socket, places).entries()) {
    const [pair, place] = [rivals[i], places[i]];
    if (!holder || !pair || !place || isGone(holder.comment)) continue;
    const { backend, family } = pair.rival;
    const ghost = backend === 'iptables' ? ghostOf(socket, family, holder) : undefined;
    const isOfContainer = isNoteOfContainer(holder.comment, owner);
    if (ghost) ghosts.set(ghost.note, ghost);
    // Also one of this container, such as an ADD that failed: the next container takes the port from it, and so from this attachment.
    else if (holder.comment && isDead(holder.comment, podsOf(socket, holder.comment), isOfContainer))
      dead.set(holder.comment, ownerOfNote(holder.comment));
    else if (isOfContainer) shared.push(place);
    else refuse(pair.claim, pair.rival, holder);
  }
  return { ghosts: [...ghosts.values()], dead: [...dead.values()], shared };
}

function podsOf(socket: NetlinkSocket, note: string): Ip[] {
  return findClaims(socket, ownerOfNote(note)).map(({ pod }) => pod);
}

function refuse(claim: Claim, { protocol, port, ip }: Claim, { comment = 'unknown' }: Element): never {
  throwTaken(
    claim,
    { holder: holderIn(comment) ?? `"${comment}"`, protocol, port, ...defined({ ip }) },
    `its DEL releases the port, or "catena gc --gone" if it no longer exists; "catena who :${port}" shows it`,
  );
}

/**
 * The host ports that conflict with this one: itself, and the same port on all addresses or on any single one, in either packet
 * filter.
 */
function rivalsOf(claim: Claim, hostIps: readonly Ip[]): Claim[] {
  const { ip, ...everywhere } = claim;
  const places = ip ? [claim, everywhere] : [claim, ...hostIps.map(one => ({ ...claim, ip: one }))];
  return (['nftables', 'iptables'] as const).flatMap(backend => places.map(one => ({ ...one, backend })));
}

/** The reference may have deleted the container, or all rules may have been flushed: what our sets still record is not forwarded. */
function ghostOf(socket: NetlinkSocket, family: 4 | 6, { comment = '' }: Element): Owner | undefined {
  const holder = ownerOfNote(comment);
  return holder.attachment && !isChainThere(socket, family, holder.attachment) ? holder : undefined;
}

/**
 * Compares the skeleton and the elements of an attachment with those in the kernel.
 * @throws Error naming what is missing or different
 */
export function checkPorts(socket: NetlinkSocket, { owner, plans, means, conditions }: WantedPorts): void {
  const what = `port mappings in table ${renderTable(TABLE)}`;
  const problems = skeletonProblems(socket, planSkeleton({ pods: plans.map(({ pod }) => pod), conditions }));
  if (problems.includes(tableMissing(TABLE))) confirmAll(what, problems);
  const claims = plans.flatMap(plan => planClaims(plan, means));
  const entries = plans.flatMap(plan => planElements(plan, owner, means));
  const counted = claims.flatMap(claim => [...countedPlaces(claim), ...askedPlaces(claim)]);
  const found = findElements(socket, [...entries.map(placeOf), ...counted]);
  confirmAll(what, [
    ...problems,
    ...conditions
      .filter(one => !isAsked(socket, one))
      .map(({ family, text }) => `rules of chain "${askingChain(family)}" for "${text}" are not ours`),
    ...entries.flatMap((entry, i) =>
      isShared(entry, found[i], owner) ? [] : (elementProblem(entry, found[i]) ?? []),
    ),
    // The counts are shared by all attachments: here it only matters that they exist.
    ...counted
      .filter((_, i) => found[entries.length + i] === undefined)
      .map(({ set, key }) => `{ ${renderFields(key)} } of "${set.name}" is missing`),
  ]);
}

/** The first network of a container keeps the ports that were passed to all of them. */
function isShared({ set }: Entry, found: Element | undefined, owner: Owner): boolean {
  return found?.comment !== owner.note && isForward(set) && isNoteOfContainer(found?.comment, owner);
}

function isForward({ name }: NftSet): boolean {
  const sets = [SETS[4], SETS[6]].flatMap(({ wildcard, specific, iptables }) => [
    wildcard,
    specific,
    iptables,
  ]);
  return sets.some(set => set.name === name) || findConditionalSet(name) !== undefined;
}

/** The place that makes the kernel evaluate conditions for the port at all. */
function askedPlaces({ family, protocol, port, backend, condition }: Claim): ElementPlace[] {
  if (backend !== 'nftables' || condition === '') return [];
  return [{ set: SETS[family].conditional, key: [PROTOCOLS[protocol], port] }];
}
