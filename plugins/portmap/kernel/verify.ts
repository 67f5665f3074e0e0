// Is everything that ADD made still in the kernel?
import { type Ip, renderIp } from '../../../src/net/ip.ts';
import { type Chain, listChains } from '../../../src/netlink/nft/chain.ts';
import { renderFields } from '../../../src/netlink/nft/datatype.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import type { Expression } from '../../../src/netlink/nft/expr.ts';
import { listRules, type Rule } from '../../../src/netlink/nft/rule.ts';
import { listSets, type NftSet } from '../../../src/netlink/nft/set.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { type Entry, isSameContainer, type Masquerading, type Owner, planElements } from '../elements.ts';
import type { FamilyPlan } from '../plan.ts';
import { ALL_SETS, type ChainPlan, planChains, SETS, TABLE } from '../skeleton.ts';

/** Differences that one message lists; one thing missing often means that all is. */
const MOST_LISTED = 5;

/**
 * Compares the skeleton and the elements of an attachment with what the kernel has.
 * @throws Error naming what is missing or different
 */
export function checkPorts(
  socket: NetlinkSocket,
  plans: readonly FamilyPlan[],
  owner: Owner,
  masquerading: Masquerading,
): void {
  const problems = [
    ...skeletonProblems(socket, plans),
    ...plans
      .flatMap(plan => planElements(plan, owner, masquerading))
      .flatMap(entry => elementProblem(socket, entry, owner)),
    ...plans.flatMap(plan => plan.forwards).flatMap(({ ip }) => (ip ? countProblem(socket, ip) : [])),
  ];
  if (problems.length === 0) return;
  const more = problems.length > MOST_LISTED ? ` and ${problems.length - MOST_LISTED} more` : '';
  const table = `${TABLE.family} ${TABLE.name}`;
  throw new Error(
    `Cannot confirm port mappings in table "${table}": ${problems.slice(0, MOST_LISTED).join(', ')}${more}`,
  );
}

function skeletonProblems(socket: NetlinkSocket, plans: readonly FamilyPlan[]): string[] {
  const sets = new Set(listSets(socket, TABLE));
  const chains = new Map(listChains(socket, TABLE).map(chain => [chain.name, chain]));
  const rules = listRules(socket, TABLE);
  return [
    ...ALL_SETS.filter(({ name }) => !sets.has(name)).map(({ name }) => `"${name}" is missing`),
    ...planChains(plans.map(({ pod }) => pod)).flatMap(plan =>
      chainProblem(
        plan,
        chains.get(plan.name),
        rules.filter(({ chain }) => chain === plan.name),
      ),
    ),
  ];
}

function chainProblem(plan: ChainPlan, chain: Chain | undefined, rules: readonly Rule[]): string[] {
  const name = `chain "${plan.name}"`;
  if (chain === undefined) return [`${name} is missing`];
  if (!isSame(chain.base, plan.base)) return [`${name} is hooked elsewhere`];
  const same = rules.length === plan.rules.length && plan.rules.every((rule, i) => isRule(rule, rules[i]));
  return same ? [] : [`rules of ${name} are not ours`];
}

function isRule(wanted: readonly Expression[], found: Rule | undefined): boolean {
  if (found?.expressions.length !== wanted.length) return false;
  return wanted.every((expression, i) => contains(found.expressions[i], withoutSetId(expression)));
}

/** The kernel does not keep the number that a set had in its batch. */
function withoutSetId(expression: Expression): object {
  if (expression.name !== 'lookup') return expression;
  const { setId: _, ...data } = expression.data;
  return { ...expression, data };
}

/** True when all that is wanted is there; what the kernel adds, such as flags that are zero, does not matter. */
function contains(found: unknown, wanted: unknown): boolean {
  if (typeof wanted !== 'object' || wanted === null || wanted instanceof Uint8Array) {
    return isSame(found, wanted);
  }
  return Object.entries(wanted).every(([key, value]) => {
    return contains((found as Record<string, unknown> | undefined)?.[key], value);
  });
}

function elementProblem(socket: NetlinkSocket, { set, element }: Entry, owner: Owner): string[] {
  const found = findElement(socket, set, element.key);
  const name = `{ ${renderFields(element.key)} } of "${set.name}"`;
  if (found === undefined) return [`${name} is missing`];
  // The first network of a container keeps the ports that were passed to all of them.
  if (found.comment !== owner.note && isForward(set) && isSameContainer(found.comment, owner)) return [];
  if (found.comment !== element.comment) return [`${name} belongs to "${found.comment ?? 'nobody'}"`];
  return isSame(found.data, element.data) ? [] : [`${name} leads elsewhere`];
}

function isForward(set: NftSet): boolean {
  return Object.values(SETS).some(({ wildcard, specific }) => set === wildcard || set === specific);
}

/** The count itself is everybody's business: only that there is one matters here. */
function countProblem(socket: NetlinkSocket, ip: Ip): string[] {
  const { hostips } = SETS[ip.family];
  return findElement(socket, hostips, [ip]) ? [] : [`{ ${renderIp(ip)} } of "${hostips.name}" is missing`];
}

function isSame(found: unknown, wanted: unknown): boolean {
  return Bun.deepEquals(found, wanted, true);
}
