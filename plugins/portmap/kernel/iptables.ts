// How do the iptables rules get into the kernel, and do they still exist?

import type { ChainOwner } from '../../../src/attach/owner.ts';
import type { AttachmentId } from '../../../src/cni/attachment.ts';
import { FAMILIES, type Family } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import {
  canUseFilter,
  FORWARDED_LABEL,
  filterChanges,
  isFilterDropping,
} from '../../../src/netlink/iptables/filter.ts';
import {
  isLegacyDropping,
  listLegacyNat,
  listNftNat,
  type NatRule,
  natTable,
} from '../../../src/netlink/iptables/nat.ts';
import {
  doProgramsChange,
  hasLegacyTools,
  restoreMode,
  restoreNat,
  restoreTable,
  saveTable,
  tryNat,
} from '../../../src/netlink/iptables/program.ts';
import { type Entry, findElement, findElements } from '../../../src/netlink/nft/element.ts';
import { hasChain } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import {
  asSaved,
  chainKey,
  dnatChain,
  type IptablesOptions,
  plainWord,
  planContainerRules,
  planEntryRules,
  planLoopbackRules,
  planSharedChains,
  planSharedRules,
  SHARED,
  type SharedRule,
  soleOwner,
} from '../iptables-rules.ts';
import { type FamilyPlan, type Means, type Owner, PROTOCOLS } from '../plan.ts';
import { CHAINS } from '../sets.ts';

/**
 * The element by which an attachment takes a chain: the one that the reference would use, or one of its own if another interface
 * of the container already has that.
 */
export function chainEntriesOf(
  socket: NetlinkSocket,
  { owner, means }: { readonly owner: Owner; readonly means: Means },
  outdated: readonly Owner[],
): Entry[] {
  const { attachment, handle, note } = owner;
  if (means.backend !== 'iptables' || attachment === undefined) return [];
  const holder = findElement(socket, CHAINS, [chainKey(attachment)]);
  const isFree = holder === undefined || outdated.some(one => one.note === holder.comment);
  const key = [chainKey(isFree ? attachment : soleOwner(attachment))];
  return [{ set: CHAINS, element: { key, data: [handle], comment: note } }];
}

/** What the chain of an attachment with iptables rules is named after. */
export function chainOwnerOf(socket: NetlinkSocket, { note }: Owner, attachment: AttachmentId): ChainOwner {
  const sole = soleOwner(attachment);
  return findElement(socket, CHAINS, [chainKey(sole)])?.comment === note ? sole : attachment;
}

/** The chains that are deleted with an attachment: its own one, and the container's unless another interface has taken it. */
export function chainsOf(socket: NetlinkSocket, { attachment, note }: Owner): ChainOwner[] {
  if (attachment === undefined) return [];
  const [shared, sole] = [attachment, soleOwner(attachment)];
  const places = [shared, sole].map(one => ({ set: CHAINS, key: [chainKey(one)] }));
  const [holder, own] = findElements(socket, places);
  const isShared = holder === undefined || holder.comment === note;
  return [...(isShared ? [shared] : []), ...(own?.comment === note ? [sole] : [])];
}

/** Whether iptables, in nf_tables or legacy, has a chain of the attachment. */
export function isChainThere(socket: NetlinkSocket, family: 4 | 6, attachment: AttachmentId): boolean {
  const chains = [attachment, soleOwner(attachment)].map(dnatChain);
  if (chains.some(chain => hasChain(socket, natTable(family), chain))) return true;
  return listLegacyNat(family).some(({ chain }) => chains.includes(chain));
}

/** Another process that makes the same chains at the same moment may be first, repeatedly. */
const ATTEMPTS = 10;
/** Beyond this many rules of a container, reading the program's listing is faster than having the program look for each rule. */
const MOST_LOOKED_FOR = 100;

/**
 * Puts the rules of an attachment into the table "nat", in one transaction per family. Its chain must not exist yet.
 * @throws Error with the message of iptables
 */
export function addIptablesPorts(
  socket: NetlinkSocket,
  plans: readonly FamilyPlan[],
  owner: ChainOwner,
  options: IptablesOptions,
): void {
  for (const plan of plans) {
    const own = [
      `:${dnatChain(owner)} - [0:0]`,
      ...planLoopbackRules(plan.family, owner).map(rule => `-A ${rule}`),
      ...planContainerRules(plan, owner, options).map(rule => `-A ${rule}`),
      ...planEntryRules(plan, owner, options).map(insertion),
    ];
    for (let attempt = 1; ; attempt++) {
      const shared = missingShared(socket, plan.family, options);
      try {
        restoreNat(plan.family, [...shared, ...own]);
        break;
      } catch (thrown) {
        const now = missingShared(socket, plan.family, options);
        if (now.join() !== shared.join() && attempt < ATTEMPTS) continue;
        requireMarking(socket, plan.family, options);
        throw thrown;
      }
    }
  }
}

/**
 * Has iptables try all shared rules and one of a fictitious attachment, without changing anything.
 * @throws Error with the message of iptables
 */
export function tryIptablesPorts(socket: NetlinkSocket, options: IptablesOptions): void {
  for (const family of FAMILIES) {
    requireMarking(socket, family, options);
    const shared = missingShared(socket, family, options);
    const conditions = options.conditions[family].map(plainWord).join(' ');
    const trial = `-A ${SHARED.dnat} -m multiport -p tcp --destination-ports 1 ${conditions} -j RETURN`;
    tryNat(family, [...shared, trial]);
  }
}

/**
 * Has iptables look for every rule, without changing anything.
 * @param maker the reference's releases differ in how they group the ports that lead to the container's chain, and also list those of the
 * other IP version
 * @throws Error naming the first missing rule or port
 */
export function checkIptablesPorts(
  socket: NetlinkSocket,
  plans: readonly FamilyPlan[],
  owner: ChainOwner,
  options: IptablesOptions,
  maker: 'catena' | 'reference',
): void {
  for (const plan of plans) {
    // With conditions, the rule must match exactly.
    const isExact = maker === 'catena' || options.conditions[plan.family].length > 0;
    confirmRules(plan, owner, options, isExact ? planEntryRules(plan, owner, options) : []);
    if (!isExact) confirmEntries(socket, plan, dnatChain(owner));
  }
}

function confirmEntries(socket: NetlinkSocket, { family, forwards }: FamilyPlan, chain: string): void {
  const isInNft = restoreMode(family) === 'nft';
  const rules = isInNft ? listNftNat(socket, family, SHARED.dnat) : listLegacyNat(family);
  const entries = rules.filter(
    rule =>
      rule.chain === SHARED.dnat && rule.target === chain && !rule.more && !rule.source && !rule.destination,
  );
  const missing = forwards.find(
    ({ protocol, port }) =>
      !entries.some(rule => rule.protocol === PROTOCOLS[protocol] && rule.ports?.includes(port)),
  );
  if (missing === undefined) return;
  const { protocol, port } = missing;
  throw new Error(
    `Cannot confirm ${nameOf(family)}: ${protocol} port ${port} is not forwarded to chain "${chain}"`,
  );
}

/** Confirms the shared rules, the container's own rules, and the given rules that jump to its chain. */
function confirmRules(
  plan: FamilyPlan,
  owner: ChainOwner,
  options: IptablesOptions,
  entries: readonly SharedRule[],
): void {
  const { family } = plan;
  const inWords = ({ chain, words }: SharedRule) => `${chain} ${words}`;
  const own = planContainerRules(plan, owner, options);
  // The program compares each rule that it looks for with every rule of the chain. If there are many, it is asked only for rules
  // that the listing does not contain verbatim.
  const saved = new Set(own.length > MOST_LOOKED_FOR ? saveTable(family, 'nat').rules : []);
  const rules = [
    ...planSharedRules(options).map(inWords),
    ...own.filter(rule => !saved.has(asSaved(rule, family))),
    ...entries.map(inWords),
  ];
  try {
    restoreNat(
      family,
      rules.map(rule => `-C ${rule}`),
    );
  } catch (thrown) {
    const words = (thrown as Error).message;
    // The first line is "*nat".
    const missing = rules[Number(/line:? (\d+)/.exec(words)?.[1]) - 2];
    throw new Error(`Cannot confirm ${nameOf(family)}: ${missing ? `rule "${missing}" is missing` : words}`, {
      cause: thrown,
    });
  }
}

function nameOf(family: Family): string {
  return `port mappings in iptables for IPv${family}`;
}

/** The commands that create the missing part of what all containers share. */
function missingShared(socket: NetlinkSocket, family: Family, options: IptablesOptions): string[] {
  const { chains, rules } = readShared(socket, family);
  const marks = (chain: string) => rules.filter(rule => rule.chain === chain).length;
  const isThere = (wanted: SharedRule): boolean => {
    // The mark that a rule matches is not read, but both chains are always written together.
    if (wanted.chain === SHARED.masquerade) return marks(SHARED.masquerade) >= marks(SHARED.setMark);
    return rules.some(
      ({ chain, target, mark }) => chain === wanted.chain && target === wanted.target && mark === wanted.mark,
    );
  };
  const shared = planSharedRules(options);
  const isMarkThere = shared.filter(({ mark }) => mark !== undefined).every(isThere);
  const missing = shared.filter(rule =>
    rule.chain === SHARED.masquerade ? !(isMarkThere && isThere(rule)) : !isThere(rule),
  );
  return [
    ...planSharedChains(options)
      .filter(chain => !chains.has(chain))
      .map(chain => `-N ${chain}`),
    ...missing.map(insertion),
  ];
}

function insertion({ chain, words, place }: SharedRule): string {
  return `${place === 'first' ? `-I ${chain} 1` : `-A ${chain}`} ${words}`;
}

/** In test mode, iptables does not look for the chain. @throws Error if the chain of another program is missing */
function requireMarking(socket: NetlinkSocket, family: Family, options: IptablesOptions): void {
  const { snat, externalSetMarkChain: chain } = options;
  if (!snat || chain === undefined || hasNatChain(socket, family, chain)) return;
  throw new Error(
    `Cannot find the chain "${chain}" of "externalSetMarkChain" in the table "nat" of IPv${family}: start the program that makes it, or leave the option out`,
  );
}

function hasNatChain(socket: NetlinkSocket, family: Family, chain: string): boolean {
  if (restoreMode(family) === 'nft') return hasChain(socket, natTable(family), chain);
  return listLegacyNat(family).some(rule => rule.chain === chain);
}

/** Reads only the packet filter that the program would use: the other one may have the same chains. */
function readShared(
  socket: NetlinkSocket,
  family: Family,
): { readonly chains: ReadonlySet<string>; readonly rules: readonly NatRule[] } {
  if (restoreMode(family) === 'legacy') {
    const rules = listLegacyNat(family);
    // Every chain ends in a rule, even if it only returns.
    const isPolicy = ({ target }: NatRule) => target === 'RETURN';
    return { chains: new Set(rules.map(({ chain }) => chain)), rules: rules.filter(rule => !isPolicy(rule)) };
  }
  const table = natTable(family);
  const chains = Object.values(SHARED).filter(chain => hasChain(socket, table, chain));
  const places = [...chains.filter(chain => chain !== SHARED.dnat), 'PREROUTING', 'OUTPUT', 'POSTROUTING'];
  return { chains: new Set(chains), rules: places.flatMap(chain => listNftNat(socket, family, chain)) };
}

/** The connections that our rules translated, and nothing else. Last, so that whatever operators drop stays dropped. */
const RULE = `FORWARD -m connlabel --label "${FORWARDED_LABEL}" -m comment --comment "catena: published ports" -j ACCEPT`;

/** The changes that add the rule where iptables is in nf_tables and lacks it. Call within `commitAfterReading`. */
export function forwardChanges(socket: NetlinkSocket, families: readonly (4 | 6)[]): Request[] {
  const line = `-A ${RULE}`;
  return families
    .filter(family => isFilterDropping(socket, family))
    .flatMap(family =>
      filterChanges(socket, family, { chains: [] }, ({ rules }) =>
        rules.includes(RULE) || !canUseFilter(socket, family, [line]) ? [] : [line],
      ),
    );
}

/** Adds the rule where iptables is the legacy packet filter and lacks it. */
export function forwardInLegacy(families: readonly (4 | 6)[]): void {
  for (const family of families) {
    if (!isLegacyDropping(family)) continue;
    const mode = doProgramsChange(family, 'legacy') ? 'any' : hasLegacyTools(family) ? 'legacy' : undefined;
    if (mode === undefined || saveTable(family, 'filter', mode).rules.includes(RULE)) continue;
    restoreTable(family, 'filter', [`-A ${RULE}`], mode);
  }
}
