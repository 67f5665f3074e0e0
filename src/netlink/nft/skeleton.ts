// How do fixed chains and sets get into the kernel, and is all of it still there?
import type { NetlinkSocket, Request } from '../socket.ts';
import { addChain, type BaseChain, type Chain, listChains } from './chain.ts';
import type { Expression } from './expr.ts';
import type { Table } from './message.ts';
import { addRule, countRules, flushChain, listRules, type Rule } from './rule.ts';
import { addSet, listSets, type NftSet } from './set.ts';
import { addTable } from './table.ts';

/** A chain of a skeleton with its rules in order. One without `rules` is for others to fill: it is made, never emptied. */
export interface ChainPlan {
  readonly name: string;
  readonly base?: BaseChain;
  readonly rules?: readonly Expression[][];
}

/** A table whose rules never change after they were made. Chains that are jumped to come before those that jump. */
export interface Skeleton {
  readonly table: Table;
  readonly comment: string;
  readonly sets: readonly NftSet[];
  readonly chains: readonly ChainPlan[];
}

/** The changes that bring a skeleton about, from whatever there is of it; elements stay. */
export function skeletonChanges({ table, comment, sets, chains }: Skeleton): Request[] {
  const ours = chains.filter(({ rules }) => rules !== undefined);
  return [
    addTable(table, comment),
    ...sets.map(addSet),
    ...chains.map(({ name, base }) => addChain(table, name, base)),
    ...ours.map(({ name }) => flushChain(table, name)),
    ...ours.flatMap(({ name, rules = [] }) => rules.map(rule => addRule(table, name, rule))),
  ];
}

/** Whether every chain has as many rules as it should: false before the first use, and after somebody flushed. */
export function hasSkeleton(socket: NetlinkSocket, { table, chains }: Skeleton): boolean {
  const counts = countRules(socket, table);
  return chains.every(({ name, rules }) => rules === undefined || counts.get(name) === rules.length);
}

/** What of a skeleton is missing or different, in words: `chain "forward" is missing`. */
export function skeletonProblems(socket: NetlinkSocket, { table, sets, chains }: Skeleton): string[] {
  const names = new Set(listSets(socket, table));
  const present = new Map(listChains(socket, table).map(chain => [chain.name, chain]));
  const rules = listRules(socket, table);
  return [
    ...sets.filter(({ name }) => !names.has(name)).map(({ name }) => `"${name}" is missing`),
    ...chains.flatMap(plan =>
      chainProblem(
        plan,
        present.get(plan.name),
        rules.filter(({ chain }) => chain === plan.name),
      ),
    ),
  ];
}

function chainProblem(plan: ChainPlan, chain: Chain | undefined, rules: readonly Rule[]): string[] {
  const name = `chain "${plan.name}"`;
  if (chain === undefined) return [`${name} is missing`];
  if (!Bun.deepEquals(chain.base, plan.base, true)) return [`${name} is hooked elsewhere`];
  if (plan.rules === undefined) return [];
  const same = rules.length === plan.rules.length && plan.rules.every((rule, i) => isRule(rule, rules[i]));
  return same ? [] : [`rules of ${name} are not ours`];
}

/** Whether a rule does what is wanted; what the kernel adds does not matter. */
export function isRule(wanted: readonly Expression[], found: Rule | undefined): boolean {
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
    return Bun.deepEquals(found, wanted, true);
  }
  return Object.entries(wanted).every(([key, value]) => {
    return contains((found as Record<string, unknown> | undefined)?.[key], value);
  });
}
