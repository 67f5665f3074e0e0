// What is the complete nf_tables rule set, in order?

import { describeUnordered } from '../lab/state/nft.ts';
import type { Table } from '../netlink/nft/message.ts';
import { keyOf, type Tables } from '../netlink/tables.ts';
import type { Observed } from './observation.ts';
import { toText } from './text.ts';

/**
 * Tables, chains, rules, sets and elements.
 * @param hidden tables that are observed in another way: `ip nat`
 */
export function observeNft(tables: Tables, hidden: ReadonlySet<string>): (readonly [string, Observed])[] {
  const isShown = ({ table }: { readonly table: Table }) => !hidden.has(keyOf(table));
  const objects = describeUnordered(tables).flatMap(({ key, words, state, parent }) => {
    if (hidden.has((parent ?? key).replace(/^table /, ''))) return [];
    return [[`${words}${key.startsWith('element') ? ` of ${parent}` : ''}`, state ?? {}] as const];
  });
  const chains = tables.nftChains.filter(isShown).map(({ table, attrs }) => {
    const { name = '', table: _, unknown: __, ...more } = attrs;
    const shown = Object.entries(more).filter(([key]) => !VOLATILE.includes(key));
    const texts = Object.fromEntries(shown.map(([key, value]) => [key, toText(value)]));
    return [`chain ${name} in table ${keyOf(table)}`, texts] as const;
  });
  const places = new Map<string, number>();
  const rules = tables.nftRules.filter(isShown).map(({ table, attrs }) => {
    const { chain = '', comment, expressions = [] } = attrs;
    const chainName = `chain ${chain} in table ${keyOf(table)}`;
    const place = (places.get(chainName) ?? 0) + 1;
    places.set(chainName, place);
    const steps = expressions.filter(({ name }) => name !== 'counter').map(toText);
    const object = { steps: steps.join(' '), ...(comment ? { comment } : {}) };
    return [`rule ${place} of ${chainName}`, object] as const;
  });
  return [...objects, ...chains, ...rules];
}

/** Numbers that the kernel assigns or counts. */
const VOLATILE = ['handle', 'use', 'counters', 'id'];
