// How are the rules that evaluate conditions added and removed?

import { FAMILIES } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import { listElements } from '../../../src/netlink/nft/element.ts';
import { decide, jump, matchFamily, type Verdict } from '../../../src/netlink/nft/expr.ts';
import { commitAfterReading } from '../../../src/netlink/nft/message.ts';
import { isRule } from '../../../src/netlink/nft/skeleton.ts';
import {
  addRule,
  COMMENT_MAX_LENGTH,
  deleteChain,
  deleteRule,
  deleteSet,
  flushChain,
  listChains,
  listRules,
  type Rule,
} from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Conditions } from '../conditions.ts';
import { askingChain, conditionalSets, TABLE, whenChain } from '../sets.ts';

/**
 * The changes that add missing condition rules and replace wrong ones. Reads the rules of all conditions in use: one or few per
 * network.
 */
export function askingChanges(socket: NetlinkSocket, conditions: readonly Conditions[]): Request[] {
  return conditions
    .filter(one => !isAsked(socket, one))
    .flatMap(one => [
      ...rulesOf(socket, one).map(rule => deleteRule(TABLE, askingChain(one.family), rule.handle)),
      ...additions(one),
    ]);
}

/** The changes that add the rules of conditions. */
export function additions(conditions: Conditions): Request[] {
  const { family, text } = conditions;
  const comment = text.length <= COMMENT_MAX_LENGTH ? text : `${text.slice(0, COMMENT_MAX_LENGTH - 3)}...`;
  return expressionsOf(conditions).map(rule => addRule(TABLE, askingChain(family), rule, comment));
}

/** Whether the kernel has exactly the rules that the conditions need. */
export function isAsked(socket: NetlinkSocket, conditions: Conditions): boolean {
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
      return handles
        .filter(handle => isUnused(socket, family, handle))
        .flatMap(handle => {
          return removal(socket, family, handle);
        });
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

function isUnused(socket: NetlinkSocket, family: 4 | 6, handle: string): boolean {
  return Object.values(conditionalSets(family, handle)).every(set => listElements(socket, set).length === 0);
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
