// Which rules of a chain may match a packet, without a look at each?
//
// A node has tens of thousands of rules, most of which want one address and port, and hundreds of attachments: looked at rule by rule, each
// packet would cost all rules.
import type { Expression } from '../../netlink/nft/expr.ts';
import type { Rule } from '../../netlink/nft/rule.ts';
import { groupBy } from '../group.ts';
import { type Byte, metaBytes, type Packet, payloadBytes } from './packet.ts';

/** An expression that loads what the next one compares with a value. Unless they are equal, the rule does not match. */
interface Condition {
  readonly name: string;
  readonly value: Uint8Array;
  load(packet: Packet, mark: readonly Byte[]): readonly Byte[];
}

/** Rules with the same conditions and different values. */
interface Group {
  readonly conditions: readonly Condition[];
  /** By position in the chain. */
  readonly values: Map<number, readonly string[]>;
  /** Positions by the values of those conditions that can be judged for a packet; by which these are. */
  readonly indexes: Map<string, ReadonlyMap<string, readonly number[]>>;
}

interface ChainIndex {
  readonly groups: readonly Group[];
  /** Positions of rules without such a condition. */
  readonly others: readonly number[];
}

const chainIndexes = new WeakMap<readonly Rule[], ChainIndex>();

/** The rules that may match, in order: all that do, and those of which it cannot be told so. */
export function candidatesOf(rules: readonly Rule[], packet: Packet, mark: readonly Byte[]): Rule[] {
  let index = chainIndexes.get(rules);
  if (index === undefined) {
    index = indexOf(rules);
    chainIndexes.set(rules, index);
  }
  const positions = [...index.others, ...index.groups.flatMap(group => findIn(group, packet, mark))];
  return positions.sort((a, b) => a - b).flatMap(position => rules[position] ?? []);
}

function indexOf(rules: readonly Rule[]): ChainIndex {
  const groups = new Map<string, Group>();
  const others: number[] = [];
  for (const [position, rule] of rules.entries()) {
    const conditions = conditionsOf(rule.expressions as readonly Expression[]);
    if (conditions.length === 0) {
      others.push(position);
      continue;
    }
    const name = conditions.map(one => one.name).join();
    const group = groups.get(name) ?? { conditions, values: new Map(), indexes: new Map() };
    group.values.set(
      position,
      conditions.map(({ value }) => value.join('.')),
    );
    groups.set(name, group);
  }
  return { groups: [...groups.values()], others };
}

function conditionsOf(expressions: readonly Expression[]): Condition[] {
  return expressions.flatMap((one, i): Condition[] => {
    const next = expressions[i + 1];
    if (next?.name !== 'cmp' || next.data instanceof Uint8Array || (next.data?.op ?? 0) !== 0) return [];
    const { sreg = 1, data } = next.data ?? {};
    const value = data?.value;
    if (value === undefined || one.data === undefined || one.data instanceof Uint8Array) return [];
    const { length } = value;
    if (one.name === 'meta' && one.data.sreg === undefined && (one.data.dreg ?? 1) === sreg) {
      const { key = 0 } = one.data;
      const load: Condition['load'] = (packet, mark) => metaBytes(packet, key, mark).slice(0, length);
      return [{ name: `meta ${key} ${length}`, value, load }];
    }
    if (one.name === 'payload' && one.data.dreg === sreg && length <= (one.data.length ?? 0)) {
      const { base = 0, offset = 0 } = one.data;
      const load: Condition['load'] = packet => payloadBytes(packet, base, offset, length);
      return [{ name: `payload ${base} ${offset} ${length}`, value, load }];
    }
    return [];
  });
}

function findIn(
  { conditions, values, indexes }: Group,
  packet: Packet,
  mark: readonly Byte[],
): readonly number[] {
  const loaded = conditions.map(one => {
    const bytes = one.load(packet, mark);
    return bytes.length === one.value.length && !bytes.includes(undefined) ? bytes.join('.') : undefined;
  });
  const known = (texts: readonly (string | undefined)[]): string =>
    texts.filter((_, i) => loaded[i] !== undefined).join();
  const which = loaded.map(text => (text === undefined ? '?' : '=')).join('');
  const index =
    indexes.get(which) ?? groupBy([...values.keys()], position => known(values.get(position) ?? []));
  indexes.set(which, index);
  return index.get(known(loaded)) ?? [];
}
