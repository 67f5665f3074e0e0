// What do the chains of one hook decide about the packet?
import type { RawChain, RawTable } from '../../netlink/nft/ruleset.ts';
import { HOOKS, type Passage, type RulePlace, type Translation } from './passage.ts';
import { renderRule } from './render.ts';
import { evaluateRule } from './rule.ts';

/** How a chain ended, and the rule that ended it. */
export type Verdict =
  | { readonly kind: 'accept' }
  | { readonly kind: 'drop' | 'unknown'; readonly rule: RulePlace }
  | { readonly kind: 'translate'; readonly rule: RulePlace; readonly to: Translation };

/** A base chain and its table. */
export interface BaseChain {
  readonly table: RawTable;
  readonly chain: RawChain;
  readonly priority: number;
  readonly isNat: boolean;
}

/** linux/netfilter_ipv4.h: the priorities of connection tracking and of the stages of translation. */
const CONNTRACK = -200;
const STAGES = { prerouting: -100, output: -100, postrouting: 100, input: 100, forward: 0 } as const;
/** linux/netfilter.h: NF_DROP */
const NF_DROP = 0;

/**
 * The base chains that a packet passes at a hook, in the order of the kernel: by priority, of equals the newest first. All
 * chains of type nat are called from one place, by their own order.
 */
export function chainsAt(tables: readonly RawTable[], { hook, packet, isBridged }: Passage): BaseChain[] {
  const families = isBridged ? ['bridge'] : [packet.src.family === 4 ? 'ip' : 'ip6', 'inet'];
  const found = tables.toReversed().flatMap(table => {
    if (!families.includes(table.family)) return [];
    return [...table.chains.values()]
      .filter(chain => chain.hook?.number === HOOKS[hook])
      .toSorted((a, b) => Number(b.handle - a.handle))
      .map(chain => ({
        table,
        chain,
        priority: chain.hook?.priority ?? 0,
        isNat: chain.hook?.type === 'nat',
      }));
  });
  return found.toSorted((a, b) => placeOf(a, hook) - placeOf(b, hook) || a.priority - b.priority);
}

function placeOf({ priority, isNat }: BaseChain, hook: Passage['hook']): number {
  return isNat ? STAGES[hook] : priority;
}

/** Runs one base chain. */
export function runChain({ table, chain, priority, isNat }: BaseChain, passage: Passage): Verdict {
  passage.isTracked = isNat || priority > CONNTRACK || passage.isBridged;
  const verdict = runRules(chain, table, passage, 0);
  if (verdict) return verdict;
  if (chain.policy !== NF_DROP) return { kind: 'accept' };
  return {
    kind: 'drop',
    rule: { family: table.family, table: table.name, chain: chain.name, text: 'policy drop' },
  };
}

/** NFT_JUMP_STACK_SIZE */
const DEEPEST = 16;

/** Undefined if the chain ends without a verdict. */
function runRules(chain: RawChain, table: RawTable, passage: Passage, depth: number): Verdict | undefined {
  for (const rule of chain.rules) {
    const effect = evaluateRule(rule, table, passage);
    if (effect === undefined) continue;
    const place = (): RulePlace => ({
      family: table.family,
      table: table.name,
      chain: chain.name,
      handle: rule.handle,
      text: renderRule(rule, passage.packet.src.family),
    });
    if (effect.kind === 'return') return undefined;
    if (effect.kind === 'accept') return { kind: 'accept' };
    if (effect.kind === 'translate') return { kind: 'translate', rule: place(), to: effect.to };
    if (effect.kind !== 'jump' && effect.kind !== 'goto') return { kind: effect.kind, rule: place() };
    const target = table.chains.get(effect.chain);
    if (target === undefined || depth >= DEEPEST) return { kind: 'unknown', rule: place() };
    const inner = runRules(target, table, passage, depth + 1);
    if (inner !== undefined || effect.kind === 'goto') return inner;
  }
  return undefined;
}
