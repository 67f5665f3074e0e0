// How do the rules of iptables get into the kernel, and are they still there?
import { listLegacyNat } from '../../../src/netlink/iptables/legacy.ts';
import { restoreMode } from '../../../src/netlink/iptables/mode.ts';
import type { Family, NatRule } from '../../../src/netlink/iptables/nat-rule.ts';
import { listNftNat, natTable } from '../../../src/netlink/iptables/nft.ts';
import { restoreNat, tryNat } from '../../../src/netlink/iptables/restore.ts';
import { hasChain } from '../../../src/netlink/nft/chain.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import {
  type IptablesOptions,
  plainWord,
  planContainerRules,
  planEntryRules,
  planSharedChains,
  planSharedRules,
  type SharedRule,
} from '../iptables-rules.ts';
import { type FamilyPlan, PROTOCOLS } from '../plan.ts';
import { type ChainOwner, dnatChain, SHARED } from '../reference-names.ts';

/** Somebody who makes the same chains at the same moment may be first, time and again. */
const ATTEMPTS = 10;

/**
 * Puts the rules of an attachment into the table "nat", one transaction for each family. Its chain must not be there.
 * @throws Error with the words of iptables
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
      ...planContainerRules(plan, owner, options).map(rule => `-A ${rule}`),
      ...planEntryRules(plan, owner, options).map(({ chain, words, place }) =>
        place === 'first' ? `-I ${chain} 1 ${words}` : `-A ${chain} ${words}`,
      ),
    ];
    for (let attempt = 1; ; attempt++) {
      const shared = missingShared(socket, plan.family, options);
      try {
        restoreNat(plan.family, [...shared, ...own]);
        break;
      } catch (thrown) {
        const now = missingShared(socket, plan.family, options);
        if (now.join() === shared.join() || attempt === ATTEMPTS) throw thrown;
      }
    }
  }
}

/**
 * Has iptables try all of it, for an attachment that there is not, without a change.
 * @throws Error with the words of iptables
 */
export function tryIptablesPorts(socket: NetlinkSocket, options: IptablesOptions): void {
  for (const family of [4, 6] as const) {
    const marking = options.externalSetMarkChain;
    if (marking !== undefined && !isChainThere(socket, family, marking)) {
      throw new Error(`Cannot find the chain "${marking}" in the table "nat" of IPv${family}`);
    }
    const shared = missingShared(socket, family, options);
    const conditions = options.conditions[family].map(plainWord).join(' ');
    const trial = `-A ${SHARED.dnat} -m multiport -p tcp --destination-ports 1 ${conditions} -j RETURN`;
    tryNat(family, [...shared, trial]);
  }
}

/**
 * Has iptables look for every rule, without a change.
 * @throws Error naming the first rule that is not there
 */
export function checkIptablesPorts(
  plans: readonly FamilyPlan[],
  owner: ChainOwner,
  options: IptablesOptions,
): void {
  for (const plan of plans) {
    confirmRules(plan, owner, options, planEntryRules(plan, owner, options));
  }
}

/**
 * Like {@link checkIptablesPorts}, for what somebody else made: releases of the reference differ in how they group the ports
 * that lead to the container's chain, and name those of the other IP version as well.
 * @throws Error naming the first rule, or the first port, that is not there
 */
export function checkForeignPorts(
  socket: NetlinkSocket,
  plans: readonly FamilyPlan[],
  owner: ChainOwner,
  options: IptablesOptions,
): void {
  for (const plan of plans) {
    // With conditions, only the very rule will do.
    const entries = options.conditions[plan.family].length ? planEntryRules(plan, owner, options) : [];
    confirmRules(plan, owner, options, entries);
    if (entries.length === 0) confirmEntries(socket, plan, dnatChain(owner));
  }
}

function confirmEntries(socket: NetlinkSocket, { family, forwards }: FamilyPlan, chain: string): void {
  const entries = readEntries(socket, family).filter(
    ({ target, more, source, destination }) => target === chain && !more && !source && !destination,
  );
  const missing = forwards.find(
    ({ protocol, port }) =>
      !entries.some(rule => rule.protocol === PROTOCOLS[protocol] && rule.ports?.includes(port)),
  );
  if (missing === undefined) return;
  const { protocol, port } = missing;
  throw new Error(
    `Cannot confirm ${nameOf(family)}: ${protocol} port ${port} does not lead to chain "${chain}"`,
  );
}

/** That what all share is there, the rules of the container, and the given ones that lead to them. */
function confirmRules(
  plan: FamilyPlan,
  owner: ChainOwner,
  options: IptablesOptions,
  entries: readonly SharedRule[],
): void {
  const { family } = plan;
  const inWords = ({ chain, words }: SharedRule) => `${chain} ${words}`;
  const rules = [
    ...planSharedRules(options).map(inWords),
    ...planContainerRules(plan, owner, options),
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

/** The rules that lead to the chains of containers. */
function readEntries(socket: NetlinkSocket, family: Family): readonly NatRule[] {
  if (restoreMode(family) === 'nft') return listNftNat(socket, family, SHARED.dnat);
  return listLegacyNat(family).filter(({ chain }) => chain === SHARED.dnat);
}

/** The commands that make what all containers share, as far as it is not there. */
function missingShared(socket: NetlinkSocket, family: Family, options: IptablesOptions): string[] {
  const { chains, rules } = readShared(socket, family);
  const marks = (chain: string) => rules.filter(rule => rule.chain === chain).length;
  const isThere = (wanted: SharedRule): boolean => {
    // What a mark is compared with is not read; both chains are always written together.
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
    ...missing.map(
      ({ chain, words, place }) => `${place === 'first' ? `-I ${chain} 1` : `-A ${chain}`} ${words}`,
    ),
  ];
}

/** The program does not look for it when it only tries. */
function isChainThere(socket: NetlinkSocket, family: Family, chain: string): boolean {
  if (restoreMode(family) === 'nft') return hasChain(socket, natTable(family), chain);
  return listLegacyNat(family).some(rule => rule.chain === chain);
}

/** Only where the program would look: the other packet filter may have the same. */
function readShared(
  socket: NetlinkSocket,
  family: Family,
): { readonly chains: ReadonlySet<string>; readonly rules: readonly NatRule[] } {
  if (restoreMode(family) === 'legacy') {
    const rules = listLegacyNat(family);
    // Every chain ends in a rule, if only one that returns.
    const isPolicy = ({ target }: NatRule) => target === 'RETURN';
    return { chains: new Set(rules.map(({ chain }) => chain)), rules: rules.filter(rule => !isPolicy(rule)) };
  }
  const table = natTable(family);
  const chains = Object.values(SHARED).filter(chain => hasChain(socket, table, chain));
  const places = [...chains.filter(chain => chain !== SHARED.dnat), 'PREROUTING', 'OUTPUT', 'POSTROUTING'];
  return { chains: new Set(chains), rules: places.flatMap(chain => listNftNat(socket, family, chain)) };
}
