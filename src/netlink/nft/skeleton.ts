// What are the fixed chains and sets of a table of ours, and are they complete in the kernel?
import { Errno } from '../../sys/errno.ts';
import type { NetlinkSocket, Request } from '../socket.ts';
import { addChain, type BaseChain, type Chain, chainQuestion, decodeChain, deleteChain } from './chain.ts';
import type { Expression } from './expr.ts';
import type { Table } from './message.ts';
import { addRule, type ChainSummary, flushChain, listRules, type Rule } from './rule.ts';
import { parseRule } from './rule-words.ts';
import { addSet, type NftSet, setQuestion } from './set.ts';
import { addTable } from './table.ts';

/**
 * A chain of a skeleton with its rules in order, as words that {@link parseRule} takes. One without `rules` is filled by other
 * code: it is created, never emptied.
 */
export interface ChainPlan {
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
  const { table, comment, sets, chains } = skeleton;
  const note = versionNote(skeleton);
  const damaged = chains.filter(plan => isDamaged(plan, present, note));
  return [
    addTable(table, comment),
    ...damaged.filter(({ name }) => present.has(name)).map(({ name }) => flushChain(table, name)),
    // The priority of a chain cannot be changed, and another release may have had another one. Nothing jumps to a base chain.
    ...damaged
      .filter(({ name, base }) => base && present.has(name))
      .map(({ name }) => deleteChain(table, name)),
    ...sets.map(addSet),
    ...chains.map(({ name, base }) => addChain(table, name, base)),
    ...damaged.flatMap(({ name, rules = [] }) => [
      ...rules.map((rule, i) =>
        addRule(table, name, parseRule(table.family, rule), i === 0 ? note : undefined),
      ),
    ]),
  ];
}

/**
 * True when every chain has the expected number of rules, of this version. False before the first use, after a flush, and
 * when the rules are those of another release.
 */
export function isComplete(skeleton: Skeleton, present: ReadonlyMap<string, ChainSummary>): boolean {
  const note = versionNote(skeleton);
  return !skeleton.chains.some(plan => isDamaged(plan, present, note));
}

function isDamaged(
  { name, rules }: ChainPlan,
  present: ReadonlyMap<string, ChainSummary>,
  note: string | undefined,
): boolean {
  if (rules === undefined) return false;
  const { count = 0, comment } = present.get(name) ?? {};
  return count !== rules.length || (count > 0 && comment !== note);
}

/** What is missing or different in a skeleton, human-readable: `chain "forward" is missing`. */
export function skeletonProblems(socket: NetlinkSocket, skeleton: Skeleton): string[] {
  const { table, sets, chains } = skeleton;
  const { hasSet, findChain } = askFor(socket, skeleton);
  const rules = listRules(socket, table);
  const note = versionNote(skeleton);
  const firsts = chains.flatMap(({ name }) => rules.find(({ chain }) => chain === name) ?? []);
  if (note !== undefined && firsts.length && !firsts.some(({ comment }) => comment === note)) {
    return ['its rules are those of another release, which the next ADD or "catena repair" replaces'];
  }
  return [
    ...sets.filter(set => !hasSet(set)).map(({ name }) => `"${name}" is missing`),
    ...chains.flatMap(plan => {
      const own = rules.filter(({ chain }) => chain === plan.name);
      return chainProblem(
        plan,
        findChain(plan),
        () =>
          own.length === plan.rules?.length &&
          plan.rules.every((rule, i) => isRule(parseRule(table.family, rule), own[i])),
      );
    }),
  ];
}

/** Asks for the sets and chains one by one, together: a list of them has those of every program on the host. */
function askFor(
  socket: NetlinkSocket,
  { table, sets, chains }: Skeleton,
): { hasSet(set: NftSet): boolean; findChain(plan: ChainPlan): Chain | undefined } {
  const questions = [...sets.map(setQuestion), ...chains.map(({ name }) => chainQuestion(table, name))];
  const answers = socket.findAll(questions, [Errno.ENOENT]);
  return {
    hasSet: set => answers[sets.indexOf(set)] !== undefined,
    findChain(plan) {
      const body = answers[sets.length + chains.indexOf(plan)];
      return body && decodeChain(body);
    },
  };
}

function chainProblem(plan: ChainPlan, chain: Chain | undefined, hasRules: () => boolean): string[] {
  const name = `chain "${plan.name}"`;
  if (chain === undefined) return [`${name} is missing`];
  if (!Bun.deepEquals(chain.base, plan.base, true)) return [`${name} is hooked elsewhere`];
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
