// What are the fixed chains and sets of a table of ours, and how does a plugin keep elements of attachments in them?

import { findIp, ipToBytes } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import type { Request } from '../codec.ts';
import { isNetlinkError, type NetlinkSocket } from '../socket.ts';
import {
  deletePlaces,
  type Element,
  type ElementPlace,
  type Entry,
  findElements,
  listElements,
} from './element.ts';
import {
  decide,
  dnat,
  type Expression,
  followVerdict,
  goto,
  isEqual,
  isInSet,
  isNotInSet,
  jump,
  loadAddress,
  loadBytes,
  loadHeader,
  loadMeta,
  lookUp,
  maskRegister,
  masquerade,
  matchFamily,
  matchLabel,
  NF_ACCEPT,
  NF_DROP,
  NFT_RETURN,
  REG,
  setLabel,
  snat,
} from './expr.ts';
import { MatchError, type Subject, takeComparison, takeSubject } from './match.ts';
import { commit, commitAfterReading, type NftFamily, renderTable, type Table } from './message.ts';
import {
  addChain,
  addRule,
  addSet,
  addTable,
  type BaseChain,
  type Chain,
  type ChainSummary,
  chainQuestion,
  deleteChain,
  flushChain,
  isDormant,
  listRules,
  type NftSet,
  type Rule,
  renderFields,
  setQuestion,
  summarizeChains,
  tableQuestion,
  toChain,
} from './table.ts';

/**
 * A chain of a skeleton with its rules in order, as words that {@link parseRule} takes. One without `rules` is filled by other
 * code: it is created, never emptied.
 */
interface ChainPlan {
  readonly name: string;
  readonly base?: BaseChain;
  readonly rules?: readonly string[];
}

/** A table whose rules never change once created. Chains that are jumped to come before those that jump to them. */
export interface Skeleton {
  readonly table: Table;
  readonly comment: string;
  readonly sets: readonly NftSet[];
  readonly chains: readonly ChainPlan[];
  /**
   * Incremented whenever a release changes the rules; absent until then. The first rule of each chain carries it in its
   * comment, so that the next change of the table replaces the rules of an earlier release.
   */
  readonly version?: number;
}

/**
 * The changes that complete a skeleton: chains with wrong rules are emptied and filled again, elements are kept.
 * @param present the chains that have rules; without it, the changes that create everything
 */
export function skeletonChanges(
  skeleton: Skeleton,
  present: ReadonlyMap<string, ChainSummary> = new Map(),
): Request[] {
  return writeChains(skeleton, present, damagedOf(skeleton, present));
}

/** The changes that create what is missing, and empty and fill these chains again. */
function writeChains(
  skeleton: Skeleton,
  present: ReadonlyMap<string, ChainSummary>,
  damaged: readonly ChainPlan[],
): Request[] {
  const { table, comment, sets, chains } = skeleton;
  const note = versionNote(skeleton);
  return [
    addTable(table, comment),
    ...damaged.filter(({ name }) => present.has(name)).map(({ name }) => flushChain(table, name)),
    // The priority of a chain cannot be changed, and another release may have had another one. Nothing jumps to a base chain.
    ...damaged
      .filter(({ name, base }) => base && present.has(name))
      .map(({ name }) => deleteChain(table, name)),
    ...sets.map(addSet),
    ...chains.map(({ name, base }) => addChain(table, name, base)),
    ...damaged.flatMap(({ name, rules = [] }) =>
      rules.map((rule, i) => addRule(table, name, parseRule(table.family, rule), i === 0 ? note : undefined)),
    ),
  ];
}

/**
 * True when every chain has the expected number of rules, of this version. False before the first use, after a flush, and
 * when the rules are those of another release.
 */
export function isComplete(skeleton: Skeleton, present: ReadonlyMap<string, ChainSummary>): boolean {
  return damagedOf(skeleton, present).length === 0;
}

function damagedOf(skeleton: Skeleton, present: ReadonlyMap<string, ChainSummary>): ChainPlan[] {
  const note = versionNote(skeleton);
  return skeleton.chains.filter(({ name, rules }) => {
    const { count = 0, comment } = present.get(name) ?? {};
    return rules && (count !== rules.length || (count > 0 && comment !== note));
  });
}

/** The only problem of a skeleton whose table is gone, human-readable. */
export function tableMissing(table: Table): string {
  return `table ${renderTable(table)} is missing`;
}

/** What is missing or different in a skeleton, human-readable: `chain "forward" is missing`. */
export function skeletonProblems(socket: NetlinkSocket, skeleton: Skeleton): string[] {
  const { table, sets, chains } = skeleton;
  // One by one, together: a list of them has those of every program on the host.
  const [found, ...parts] = socket.askAll([
    tableQuestion(table),
    ...sets.map(setQuestion),
    ...chains.map(({ name }) => chainQuestion(table, name)),
  ]);
  const rules = listRules(socket, table);
  const note = versionNote(skeleton);
  const firsts = chains.flatMap(({ name }) => rules.find(({ chain }) => chain === name) ?? []);
  if (note !== undefined && firsts.length && !firsts.some(({ comment }) => comment === note)) {
    return ['its rules are those of another release, which the next ADD or "catena repair" replaces'];
  }
  if (rules.length === 0 && found === undefined) return [tableMissing(table)];
  return [
    ...(found && isDormant(found)
      ? [`table ${renderTable(table)} is dormant: none of its rules applies`]
      : []),
    ...sets.filter((_, i) => parts[i] === undefined).map(({ name }) => `"${name}" is missing`),
    ...chains.flatMap((plan, at) => {
      const own = rules.filter(({ chain }) => chain === plan.name);
      const chain = parts[sets.length + at];
      return chainProblem(
        plan,
        chain && toChain(chain),
        () =>
          own.length === plan.rules?.length &&
          plan.rules.every((rule, i) => isRule(parseRule(table.family, rule), own[i])),
      );
    }),
  ];
}

function chainProblem(plan: ChainPlan, chain: Chain | undefined, hasRules: () => boolean): string[] {
  const name = `chain "${plan.name}"`;
  if (chain === undefined) return [`${name} is missing`];
  if (!Bun.deepEquals(chain.base, plan.base, true)) return [`${name} is hooked elsewhere`];
  if (chain.drops) return [`${name} drops what none of its rules accepts`];
  return plan.rules === undefined || hasRules() ? [] : [`rules of ${name} are not ours`];
}

function versionNote({ version }: Skeleton): string | undefined {
  return version === undefined ? undefined : `catena rules, version ${version}`;
}

/** True when a rule has the wanted expressions; whatever the kernel adds is ignored. */
export function isRule(wanted: readonly Expression[], found: Rule | undefined): boolean {
  if (found?.expressions.length !== wanted.length) return false;
  return wanted.every((expression, i) => contains(found.expressions[i], withoutSetId(expression)));
}

/** The kernel does not keep the id that a set had in its batch. */
function withoutSetId(expression: Expression): object {
  if (expression.name !== 'lookup') return expression;
  const { setId: _, ...data } = expression.data;
  return { ...expression, data };
}

/** True when everything wanted is present; whatever the kernel adds, such as zero flags, is ignored. */
function contains(found: unknown, wanted: unknown): boolean {
  if (typeof wanted !== 'object' || wanted === null || wanted instanceof Uint8Array) {
    return Bun.deepEquals(found, wanted, true);
  }
  return Object.entries(wanted).every(([key, value]) => {
    return contains((found as Record<string, unknown> | undefined)?.[key], value);
  });
}

const VERDICTS: Readonly<Record<string, number>> = {
  accept: NF_ACCEPT,
  drop: NF_DROP,
  return: NFT_RETURN,
};

/** linux/if_ether.h, in network byte order */
const ETHERTYPE = { 4: Uint8Array.of(0x08, 0x00), 6: Uint8Array.of(0x86, 0xdd) } as const;

/** What conditions of a configuration cannot be about. */
const MORE_SUBJECTS: Readonly<Record<string, Subject>> = {
  /** The source in linux/if_ether.h, struct ethhdr. It can only be part of a key, so no value is ever parsed. */
  'ether saddr': {
    load: dreg => [loadHeader('ll', dreg, 6, 6)],
    quarters: 2,
    parse: () => undefined,
    values: 'a key of a set',
  },
  /** The first byte of linux/icmpv6.h, struct icmp6hdr; a range of numbers. */
  'icmpv6 type': {
    load: dreg => [
      loadMeta(dreg, 'l4proto'),
      isEqual(dreg, Uint8Array.of(IPPROTO_ICMPV6)),
      loadHeader('th', dreg, 0, 1),
    ],
    parse: word => {
      const [from = 0, to = 0] = word.split('-').map(Number);
      return { value: Uint8Array.of(from), to: Uint8Array.of(to) };
    },
    values: 'a range of numbers',
  },
};

/** netinet/in.h */
const IPPROTO_ICMPV6 = 58;

/** Register of the label that a rule sets: keys and data of maps are in the quarters before it. */
const LABEL_QUARTER = 8;

interface Reading {
  readonly text: string;
  readonly family: NftFamily;
  /** What remains of the rule. */
  readonly words: string[];
  readonly matches: Expression[];
  readonly statements: Expression[];
  /** IP version that the packets are known to have. */
  version?: 4 | 6;
}

/** One part of a key: a property of the packet, perhaps masked. */
interface Part {
  readonly name: string;
  readonly subject: Subject;
  readonly mask?: Uint8Array | undefined;
}

/**
 * Parses a rule as `nft list` prints it: `ip daddr . iifname @home4 drop`. Supports comparisons as `parseMatch` does (without
 * alternatives), lookups in sets and maps, labels, verdicts, `masquerade`, `snat` to an address or to the packet's own source, and `dnat` by a map. As in nft, `ip` and `ip6` imply a
 * match of the IP version, once per rule. All matches and lookups are evaluated before the first statement. The text must not
 * contain names that others choose: names of interfaces may contain signs.
 * @throws MatchError saying what cannot be parsed
 */
export function parseRule(family: NftFamily, text: string): Expression[] {
  const rule: Reading = { text, family, words: text.split(' '), matches: [], statements: [] };
  while (rule.words.length) {
    if (!takeStatement(rule)) takeMatch(rule);
  }
  return [...rule.matches, ...rule.statements];
}

function takeStatement(rule: Reading): boolean {
  const { words, statements } = rule;
  const [word = '', second = '', third = '', fourth = ''] = words;
  if (Object.hasOwn(VERDICTS, word)) {
    words.shift();
    statements.push(decide({ code: VERDICTS[word] ?? NF_DROP }));
  } else if (word === 'jump' || word === 'goto') {
    words.splice(0, 2);
    statements.push(decide(word === 'jump' ? jump(second) : goto(second)));
  } else if (word === 'masquerade') {
    words.shift();
    statements.push(masquerade());
  } else if (word === 'snat' && (second === 'ip' || second === 'ip6') && third === 'to') {
    words.splice(0, 4);
    if (fourth === second && words[0] === 'saddr') {
      words.shift();
      statements.push(loadAddress(second === 'ip' ? 4 : 6, 'saddr', REG.first), snat(second, REG.first));
      return true;
    }
    const ip = findIp(fourth);
    if (ip === undefined) throw new MatchError(rule.text, `"${fourth}" is not an address`);
    statements.push(loadBytes(REG.first, ipToBytes(ip)), snat(second, REG.first));
  } else if (word === 'ct' && second === 'label' && third === 'set') {
    words.splice(0, 4);
    statements.push(...setLabel(Number(fourth), REG.quarter(LABEL_QUARTER)));
  } else if (word === 'dnat' && third === 'to') {
    words.splice(0, 3);
    const key = takeKey(rule);
    const name = takeSetName(rule, 'map');
    rule.matches.push(...loadKey(key), lookUp(name, REG.first, REG.first));
    statements.push(
      second === 'ip' ? dnat('ip', REG.first, REG.quarter(1)) : dnat('ip6', REG.first, REG.quarter(4)),
    );
  } else return false;
  return true;
}

function takeMatch(rule: Reading): void {
  const { text, words, matches } = rule;
  const [first, second, third = ''] = words;
  if (first === 'meta' && second === 'nfproto') {
    words.splice(0, 3);
    requireVersion(rule, third === 'ipv4' ? 4 : 6);
    return;
  }
  if (first === 'ct' && second === 'label') {
    words.splice(0, 3);
    matches.push(...matchLabel(Number(third)));
    return;
  }
  const key = takeKey(rule);
  if (words[0]?.startsWith('@')) {
    matches.push(...loadKey(key), isInSet(takeSetName(rule), REG.first));
  } else if (words[0] === '!=' && words[1]?.startsWith('@')) {
    matches.push(...loadKey(key), isNotInSet(takeSetName(rule, '!='), REG.first));
  } else if (words[0] === 'vmap') {
    matches.push(...loadKey(key), followVerdict(takeSetName(rule, 'vmap'), REG.first));
  } else {
    const [only, more] = key;
    if (only === undefined || more || only.mask) throw new MatchError(text, 'a key lacks its set');
    const [tests = [], alternative] = takeComparison(text, words, only.name, only.subject);
    if (alternative) throw new MatchError(text, `"${only.name}" has several values`);
    matches.push(...tests);
  }
}

/** Takes `ip saddr . ip daddr & 255.255.255.0`; also matches the IP version that it implies. */
function takeKey(rule: Reading): Part[] {
  const { text, words } = rule;
  const parts: Part[] = [];
  do {
    if (parts.length) words.shift();
    if (words[0] === 'ip' || words[0] === 'ip6') requireVersion(rule, words[0] === 'ip' ? 4 : 6);
    const more = words.slice(0, 2).join(' ');
    const own = MORE_SUBJECTS[more];
    const [name, subject] = own ? [more, own] : takeSubject(text, words);
    if (own) words.splice(0, 2);
    // What takeComparison() takes itself is left to it.
    const isMasked = words[0] === '&' && !subject.masked;
    const mask = isMasked ? subject.parse(words[1] ?? '')?.value : undefined;
    if (isMasked) words.splice(0, 2);
    parts.push({ name, subject, mask });
  } while (words[0] === '.');
  return parts;
}

/** Takes `@<set>`, preceded by the sign. */
function takeSetName({ text, words }: Reading, sign?: string): string {
  if (sign !== undefined && words.shift() !== sign) throw new MatchError(text, `"${sign}" is missing`);
  const word = words.shift() ?? '';
  if (!/^@./.test(word)) throw new MatchError(text, `a set is missing before "${word}"`);
  return word.slice(1);
}

function loadKey(parts: readonly Part[]): Expression[] {
  let quarter = 0;
  return parts.flatMap(({ subject, mask }) => {
    const register = REG.quarter(quarter);
    quarter += subject.quarters ?? 1;
    return [...subject.load(register), ...(mask ? [maskRegister(register, mask)] : [])];
  });
}

/** Packets of both IP versions reach tables of these families; in a bridge, the ethertype gives the version. */
function requireVersion(rule: Reading, version: 4 | 6): void {
  if (rule.version === version) return;
  rule.version = version;
  if (rule.family === 'inet') rule.matches.push(...matchFamily(version));
  if (rule.family === 'bridge') {
    rule.matches.push(loadMeta(REG.first, 'protocol'), isEqual(REG.first, ETHERTYPE[version]));
  }
}

// How does a plugin keep state in tables of its own, where fixed rules look up elements that belong to attachments?
//
// The rules are created by the first attachment and never change; an attachment only adds elements. Each element names its owner
// in its comment, so it can be deleted when nothing else is known about the attachment. A flush, or another release, is detected
// by the number of rules in each chain, and repaired by the next change.

/**
 * Changes elements in one transaction, which first completes the tables that need it.
 * @param decide reads what it needs and returns the changes of elements; may run several times, and may throw
 * @throws NetlinkError of the first change that the kernel refused
 */
export function changeOwned(
  socket: NetlinkSocket,
  skeletons: readonly Skeleton[],
  decide: () => readonly Request[],
): void {
  const attempt = (isIncomplete: typeof isComplete) =>
    commitAfterReading(socket, () => {
      const incomplete = skeletons
        .map(skeleton => ({ skeleton, present: summarizeChains(socket, skeleton.table) }))
        .filter(({ skeleton, present }) => isIncomplete(skeleton, present));
      for (const { skeleton } of incomplete) wake(socket, skeleton.table);
      return [
        ...incomplete.flatMap(({ skeleton, present }) => skeletonChanges(skeleton, present)),
        ...decide(),
      ];
    });
  try {
    attempt((skeleton, present) => !isComplete(skeleton, present));
  } catch (thrown) {
    // A set that no rule mentions is missing: it was deleted, or the skeleton is that of an older release.
    if (!isNetlinkError(thrown, Errno.ENOENT)) throw thrown;
    attempt(() => true);
  }
}

/**
 * Writes the rules of a table again if they, or the chains, are not ours although there are as many of them: what {@link changeOwned}
 * does not look for. Elements stay.
 */
export function restoreSkeleton(socket: NetlinkSocket, skeleton: Skeleton): void {
  wake(socket, skeleton.table);
  commitAfterReading(socket, () => {
    const present = summarizeChains(socket, skeleton.table);
    if (!isComplete(skeleton, present) || skeletonProblems(socket, skeleton).length === 0) return [];
    return writeChains(
      skeleton,
      present,
      skeleton.chains.filter(({ rules }) => rules !== undefined),
    );
  });
}

/** A transaction that ends the dormancy of a table may add no chain to it. */
function wake(socket: NetlinkSocket, table: Table): void {
  const found = socket.ask(tableQuestion(table));
  if (found && isDormant(found)) commit(socket, [addTable(table)]);
}

/** Elements by their owners' comments. Reads every element of the sets. */
export function listOwned(
  socket: NetlinkSocket,
  sets: readonly NftSet[],
  isWanted: (owner: string) => boolean,
): Entry[] {
  return sets.flatMap(set =>
    listElements(socket, set).flatMap(element =>
      element.comment !== undefined && isWanted(element.comment) ? { set, element } : [],
    ),
  );
}

/** The owners of elements, each once. Reads every element of the sets. */
export function listOwners(
  socket: NetlinkSocket,
  sets: readonly NftSet[],
  isWanted: (owner: string) => boolean,
): string[] {
  return [...new Set(listOwned(socket, sets, isWanted).flatMap(({ element }) => element.comment ?? []))];
}

/** The places whose elements belong to the owner. The cost does not depend on the number of other elements. */
export function findOwned(
  socket: NetlinkSocket,
  places: readonly ElementPlace[],
  owner: string,
): ElementPlace[] {
  const found = findElements(socket, places);
  return places.filter((_, i) => found[i]?.comment === owner);
}

/**
 * Elements whose keys are the owner's handle and a number, from zero without gaps: for each of the sets, in order. Asks for the
 * first of each set, then for as many more as have been found already.
 */
export function findNumbered(
  socket: NetlinkSocket,
  sets: readonly NftSet[],
  { handle, note }: { readonly handle: string; readonly note: string },
): Element[][] {
  const found = sets.map((): Element[] => []);
  let open = sets.map((set, i) => ({ set, own: found[i] ?? [] }));
  for (let count = 1; open.length; count = Math.max(...open.map(({ own }) => own.length), 1)) {
    const asked = open.flatMap(one =>
      Array.from({ length: count }, (_, i) => ({ ...one, key: [handle, one.own.length + i] })),
    );
    const answers = findElements(socket, asked);
    const ended = new Set<readonly Element[]>();
    for (const [i, { own }] of asked.entries()) {
      const element = answers[i];
      if (element?.comment !== note) ended.add(own);
      else if (!ended.has(own)) own.push(element);
    }
    open = open.filter(({ own }) => !ended.has(own));
  }
  return found;
}

/** Removes the elements of owners that are gone, in one transaction. Reads every element of the sets. */
export function sweepOwned(
  socket: NetlinkSocket,
  sets: readonly NftSet[],
  isGone: (owner: string) => boolean,
): void {
  commitAfterReading(socket, () => deletePlaces(listOwned(socket, sets, isGone).map(placeOf)));
}

/** How an element differs from the one that should be there, human-readable; undefined when it does not. */
export function elementProblem({ set, element }: Entry, found: Element | undefined): string | undefined {
  const name = `{ ${renderFields(element.key)} } of "${set.name}"`;
  if (found === undefined) return `${name} is missing`;
  if (found.comment === undefined) return `${name} has no owner`;
  if (found.comment !== element.comment) return `${name} belongs to "${found.comment}"`;
  return Bun.deepEquals(found.data, element.data, true) ? undefined : `${name} leads elsewhere`;
}

/** What is missing or different in the tables and among the elements, human-readable. */
export function findOwnedProblems(
  socket: NetlinkSocket,
  skeletons: readonly Skeleton[],
  entries: readonly Entry[],
): string[] {
  const problems = new Set(skeletons.flatMap(skeleton => skeletonProblems(socket, skeleton)));
  const left = entries.filter(({ set }) => !problems.has(tableMissing(set.table)));
  const found = findElements(socket, left.map(placeOf));
  return [...problems, ...left.flatMap((entry, i) => elementProblem(entry, found[i]) ?? [])];
}

export function placeOf({ set, element: { key } }: Entry): ElementPlace {
  return { set, key };
}
