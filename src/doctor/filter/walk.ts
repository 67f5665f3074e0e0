// Which way does a packet take through a base chain, as far as its rules can be judged?

import type { Chain } from '../../netlink/nft/chain.ts';
import { NF_ACCEPT, NF_DROP, NFT_GOTO, NFT_JUMP, NFT_RETURN } from '../../netlink/nft/data.ts';
import type { FilterTable } from '../../netlink/tables.ts';
import { candidatesOf } from './candidates.ts';
import type { Byte, Packet } from './packet.ts';
import { type Action, judgeRule } from './rule.ts';

/** Whether the packet comes so far. */
type Arrival = 'surely' | 'perhaps' | 'never';

/** A rule of a chain. */
export interface RulePlace {
  readonly chain: string;
  readonly handle: bigint;
}

/** A rule, or without a handle the policy of a chain, that takes a packet away from its container, or replaces its source. */
export interface Fate {
  readonly table: FilterTable['table'];
  /** The chain in which the packet entered the table. */
  readonly base: string;
  readonly chain: string;
  readonly handle: bigint | undefined;
  /** False if a rule on the way cannot be judged. */
  readonly isSure: boolean;
  /** That rule, if it is not sure. */
  readonly doubt?: RulePlace | undefined;
  /** `translate`: to another address than that of the container. */
  readonly what: 'drop' | 'translate' | 'source';
  readonly to?: string | undefined;
  readonly toPort?: number | undefined;
  /** What the rule made the labels of the connection. */
  readonly labels?: readonly Byte[] | undefined;
}

/** The kernel allows chains as many jumps in each other (NFT_JUMP_STACK_SIZE). */
const MOST_JUMPS = 16;

/**
 * The fates of a packet in a base chain; none if it passes.
 * @param target the address to which a translation is right
 */
export function walk(
  table: FilterTable,
  base: Chain,
  packet: Packet,
  { mark, target }: { readonly mark: readonly Byte[]; readonly target: string | undefined },
): Fate[] {
  const fates: Fate[] = [];
  let doubt: RulePlace | undefined;
  const ends = new Map<string, Arrival>();
  const end = through(base.name, 'surely', 0);
  if (base.drops && end !== 'never')
    add({ ...placeOf(base.name, undefined), isSure: end === 'surely', what: 'drop' });
  return fates;

  function add(fate: Fate): void {
    fates.push(fate.isSure || doubt === undefined ? fate : { ...fate, doubt });
  }

  function placeOf(chain: string, handle: bigint | undefined) {
    return { table: table.table, base: base.name, chain, handle };
  }

  /**
   * Each chain is walked at most once per kind of arrival: what it does to the packet is the same each time, and a few jumps in each of a few
   * chains, which a container with NET_ADMIN may make, would be millions of ways.
   * @returns whether the packet comes to the end of the chain, or returns from it
   */
  function through(chain: string, arrival: Arrival, depth: number): Arrival {
    if (depth > MOST_JUMPS) return 'perhaps';
    const way = `${arrival} ${chain}`;
    const end = ends.get(way) ?? throughRules(chain, arrival, depth);
    ends.set(way, end);
    return end;
  }

  function throughRules(chain: string, arrival: Arrival, depth: number): Arrival {
    let here = arrival;
    let returned: Arrival = 'never';
    for (const rule of candidatesOf(table.rules.get(chain) ?? [], packet, mark)) {
      if (here === 'never') break;
      const { matches, action } = judgeRule(rule, packet, { contents: table.contents, mark });
      if (matches === false || action === undefined) continue;
      if (matches === undefined || action.kind === 'unknown') doubt ??= { chain, handle: rule.handle };
      const taken: Arrival = matches && here === 'surely' ? 'surely' : 'perhaps';
      const { after, back } = act(action, taken, { ...placeOf(chain, rule.handle), depth });
      returned = either(returned, back);
      // What may not have matched goes on to the next rule.
      here = matches ? after : 'perhaps';
    }
    return either(here, returned);
  }

  /** @returns whether the packet comes to the next rule, and whether it returns to the chain before */
  function act(
    action: Action,
    taken: Arrival,
    { depth, ...place }: ReturnType<typeof placeOf> & { readonly depth: number },
  ): { readonly after: Arrival; readonly back: Arrival } {
    const isSure = taken === 'surely';
    const drop = (sure: boolean) => {
      add({ ...place, isSure: sure, what: 'drop' });
    };
    if (action.kind === 'unknown') {
      drop(false);
      return { after: 'perhaps', back: 'never' };
    }
    if (action.kind === 'drop') {
      drop(isSure);
      return ENDED;
    }
    if (action.kind === 'translate') {
      if (action.to === undefined || action.to !== target)
        add({
          ...place,
          isSure,
          what: 'translate',
          to: action.to,
          toPort: action.port,
          labels: action.labels,
        });
      return ENDED;
    }
    if (action.kind === 'source') {
      add({ ...place, isSure, what: 'source', to: action.to });
      return ENDED;
    }
    const { code, chain = '' } = action.verdict;
    if (code === NF_DROP) drop(isSure);
    if (code === NF_DROP || code === NF_ACCEPT) return ENDED;
    if (code === NFT_RETURN) return { after: 'never', back: taken };
    if (code === NFT_JUMP) return { after: through(chain, taken, depth + 1), back: 'never' };
    if (code === NFT_GOTO) return { after: 'never', back: through(chain, taken, depth + 1) };
    // NFT_CONTINUE, and NF_QUEUE, which leaves the decision to a process.
    return { after: taken, back: 'never' };
  }
}

const ENDED = { after: 'never', back: 'never' } as const;

function either(a: Arrival, b: Arrival): Arrival {
  if (a === 'surely' || b === 'surely') return 'surely';
  return a === 'perhaps' || b === 'perhaps' ? 'perhaps' : 'never';
}
