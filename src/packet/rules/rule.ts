// Does one rule match the packet, and what does it decide?
import { ipFromBytes } from '../../net/ip.ts';
import type { Expression } from '../../netlink/nft/expr.ts';
import type { Rule } from '../../netlink/nft/rule.ts';
import type { RawTable } from '../../netlink/nft/ruleset.ts';
import { headerOf } from '../packet.ts';
import { addLabels, readCt, readMeta } from './loads.ts';
import type { Effect, Passage } from './passage.ts';
import { Registers } from './registers.ts';
import { lookUpKey } from './set-lookup.ts';
import { masqueradeAs, redirectTo } from './translations.ts';
import {
  certain,
  compareBytes,
  hostNumber,
  isCertain,
  not,
  numberOf,
  startsWith,
  type Truth,
  uncertain,
  type Value,
} from './value.ts';
import { testMatch } from './xt-match.ts';
import { applyTarget } from './xt-target.ts';

/** What came of one expression. */
type Step = Truth | Effect;
type Data<K extends Expression['name']> = Extract<Expression, { name: K }>['data'];

/** Expressions that do not influence the packet's way. */
const HARMLESS = ['counter', 'log', 'last', 'flow_offload'];

/** What a rule does: undefined if it does not match, or has no verdict. */
export function evaluateRule(rule: Rule, table: RawTable, passage: Passage): Effect | undefined {
  const registers = new Registers();
  let isSure = true;
  const before = { packet: passage.packet, ...pick(passage) };
  for (const { name = '', data } of rule.expressions) {
    if (HARMLESS.includes(name)) continue;
    const step = evaluate(name, data, { registers, table, passage });
    if (step === 'no') return restore(passage, before, isSure);
    if (step === 'maybe') isSure = false;
    else if (step !== 'yes') return isSure ? step : { kind: 'unknown' };
  }
  return isSure || isUnchanged(passage, before) ? undefined : { kind: 'unknown' };
}

function pick({ flow }: Passage): { mark: number | undefined; labels: bigint; untracked: boolean } {
  return { mark: flow.mark, labels: flow.labels, untracked: flow.untracked };
}

type Before = ReturnType<typeof pick> & { packet: Passage['packet'] };

function isUnchanged(passage: Passage, before: Before): boolean {
  const { mark, labels, untracked } = passage.flow;
  return (
    passage.packet === before.packet &&
    mark === before.mark &&
    labels === before.labels &&
    untracked === before.untracked
  );
}

/** A statement before the match that failed may have been executed or not. */
function restore(passage: Passage, before: Before, isSure: boolean): Effect | undefined {
  return isSure || isUnchanged(passage, before) ? undefined : { kind: 'unknown' };
}

interface Scene {
  readonly registers: Registers;
  readonly table: RawTable;
  readonly passage: Passage;
}

function evaluate(name: string, data: unknown, scene: Scene): Step {
  const run = Object.hasOwn(EVALUATORS, name) ? EVALUATORS[name as keyof typeof EVALUATORS] : undefined;
  if (name === 'reject') return { kind: 'drop' };
  if (name === 'notrack') {
    scene.passage.flow.untracked = true;
    return 'yes';
  }
  // Bytes, or an attribute that is not in our tables, such as a negation that is newer than this code.
  const isStrange = data instanceof Uint8Array || (data as { unknown?: unknown[] })?.unknown?.length;
  if (run === undefined || isStrange || data === undefined) {
    scene.registers.forget();
    // Limits and the like only decide whether the rule matches; these take the packet elsewhere.
    return ['queue', 'tproxy', 'synproxy', 'dup', 'fwd'].includes(name) ? { kind: 'unknown' } : 'maybe';
  }
  return (run as (data: unknown, scene: Scene) => Step)(data, scene);
}

const EVALUATORS = {
  payload({ dreg = 0, base, offset = 0, length = 0 }: Data<'payload'>, { registers, passage }: Scene): Step {
    const header = headerOf(passage.packet, base === 0 ? 'link' : base === 1 ? 'network' : 'transport');
    const part = (bytes: Uint8Array): Uint8Array => bytes.subarray(offset, offset + length);
    const isInside = base !== undefined && base <= 2 && offset + length <= header.bytes.length;
    registers.load(
      dreg,
      isInside ? { bytes: part(header.bytes), known: part(header.known) } : uncertain(length),
    );
    return 'yes';
  },
  meta({ key, dreg, sreg }: Data<'meta'>, { registers, passage }: Scene): Step {
    if (sreg === undefined) {
      registers.load(dreg ?? 0, readMeta(key, passage));
      return 'yes';
    }
    if (key === 3) passage.packet = { ...passage.packet, mark: numberOf(registers.read(sreg, 4)) };
    return 'yes';
  },
  ct({ key, dreg, sreg, direction }: Data<'ct'>, { registers, passage }: Scene): Step {
    if (sreg === undefined) {
      const value = readCt(key, direction, passage);
      if (value) registers.load(dreg ?? 0, value);
      return value ? 'yes' : 'no';
    }
    if (key === 3) passage.flow.mark = numberOf(registers.read(sreg, 4));
    else if (key === 13) {
      const labels = registers.read(sreg, 16);
      if (!isCertain(labels)) return { kind: 'unknown' };
      addLabels(passage.flow, labels.bytes);
    } else if (key === 17) return { kind: 'unknown' };
    return 'yes';
  },
  cmp({ sreg = 0, op = 0, data }: Data<'cmp'>, { registers }: Scene): Step {
    const want = data?.value ?? new Uint8Array();
    const value = registers.read(sreg, want.length);
    if (op === 0) return startsWith(value, want);
    if (op === 1) return not(startsWith(value, want));
    if (!isCertain(value)) return 'maybe';
    const order = compareBytes(value.bytes, want);
    return [order < 0, order <= 0, order > 0, order >= 0][op - 2] ? 'yes' : 'no';
  },
  range({ sreg = 0, op = 0, from, to }: Data<'range'>, { registers }: Scene): Step {
    const [low, high] = [from?.value ?? new Uint8Array(), to?.value ?? new Uint8Array()];
    const value = registers.read(sreg, low.length);
    if (!isCertain(value)) return 'maybe';
    const isInside = compareBytes(value.bytes, low) >= 0 && compareBytes(value.bytes, high) <= 0;
    return isInside === (op === 0) ? 'yes' : 'no';
  },
  bitwise(
    { sreg = 0, dreg = 0, op = 0, length = 0, mask, xor }: Data<'bitwise'>,
    { registers }: Scene,
  ): Step {
    const { bytes, known } = registers.read(sreg, length);
    if (op !== 0) {
      registers.load(dreg, uncertain(length));
      return 'yes';
    }
    const keep = (i: number): number => mask?.value?.[i] ?? 0;
    registers.load(dreg, {
      bytes: bytes.map((byte, i) => (byte & keep(i)) ^ (xor?.value?.[i] ?? 0)),
      known: known.map((bits, i) => bits | (~keep(i) & 0xff)),
    });
    return 'yes';
  },
  byteorder({ sreg = 0, dreg = 0, length = 0, size = 1 }: Data<'byteorder'>, { registers }: Scene): Step {
    const { bytes, known } = registers.read(sreg, length);
    const swap = (from: Uint8Array): Uint8Array =>
      from.map((_, i) => from[i - (i % size) + (size - 1 - (i % size))] ?? 0);
    registers.load(dreg, { bytes: swap(bytes), known: swap(known) });
    return 'yes';
  },
  fib({ flags = 0, result, dreg = 0 }: Data<'fib'>, { registers, passage }: Scene): Step {
    const type =
      flags === 1 || flags === 2
        ? passage.addressType(passage.packet[flags === 1 ? 'src' : 'dst'])
        : undefined;
    registers.load(dreg, result === 3 ? hostNumber(type, 4) : uncertain(16));
    return 'yes';
  },
  lookup(
    { set = '', sreg = 0, dreg, flags = 0 }: Data<'lookup'>,
    { registers, table, passage: _ }: Scene,
  ): Step {
    const found = table.sets.get(set);
    if (found === undefined) return 'maybe';
    const { truth, element } = lookUpKey(found, registers.read(sreg, found.keyLength));
    if (flags & 1) return not(truth);
    if (dreg === undefined || truth !== 'yes') {
      if (dreg !== undefined && truth === 'maybe')
        return dreg === 0 ? { kind: 'unknown' } : forget(registers);
      return truth;
    }
    return put(dreg, element?.data, registers);
  },
  immediate({ dreg = 0, data }: Data<'immediate'>, { registers }: Scene): Step {
    return put(dreg, data, registers);
  },
  match({ name = '', revision = 0, info = new Uint8Array() }: Data<'match'>, { passage }: Scene): Step {
    return testMatch(name, revision, info, passage);
  },
  target({ name = '', revision = 0, info = new Uint8Array() }: Data<'target'>, { passage }: Scene): Step {
    return applyTarget(name, revision, info, passage) ?? 'yes';
  },
  nat(data: Data<'nat'>, { registers, passage }: Scene): Step {
    const {
      addressRegister: low,
      lastAddressRegister: high = low,
      portRegister: first,
      lastPortRegister: last = first,
    } = data;
    const width = passage.packet.src.family === 4 ? 4 : 16;
    const ip = one(low, high, width, registers);
    const port = one(first, last, 2, registers);
    // NF_NAT_RANGE_NETMAP
    if (ip === 'choice' || port === 'choice' || (data.flags ?? 0) & 64) return { kind: 'unknown' };
    const to = {
      side: data.type === 0 ? ('src' as const) : ('dst' as const),
      ...(ip ? { ip: ipFromBytes(ip) } : {}),
      ...(port ? { port: numberOf(certain(port.toReversed())) } : {}),
    };
    return { kind: 'translate', to };
  },
  masq({ portRegister }: Data<'masq'>, { passage }: Scene): Step {
    const to = portRegister === undefined ? masqueradeAs(passage) : undefined;
    return to ? { kind: 'translate', to } : { kind: 'unknown' };
  },
  redir({ portRegister, lastPortRegister }: Data<'redir'>, { registers, passage }: Scene): Step {
    const port = one(portRegister, lastPortRegister ?? portRegister, 2, registers);
    const to =
      port === 'choice' ? undefined : redirectTo(passage, port && numberOf(certain(port.toReversed())));
    return to ? { kind: 'translate', to } : { kind: 'unknown' };
  },
} as const;

function forget(registers: Registers): Step {
  registers.forget();
  return 'maybe';
}

/** The value of two registers that hold both ends of a range. */
function one(
  low: number | undefined,
  high: number | undefined,
  length: number,
  registers: Registers,
): Uint8Array | 'choice' | undefined {
  if (low === undefined || high === undefined) return undefined;
  const [from, to]: Value[] = [registers.read(low, length), registers.read(high, length)];
  if (!from || !to || !isCertain(from) || !isCertain(to) || compareBytes(from.bytes, to.bytes))
    return 'choice';
  return from.bytes;
}

/** linux/netfilter.h and linux/netfilter/nf_tables.h, enum nft_verdicts */
const VERDICTS: Readonly<Record<number, 'drop' | 'accept' | 'return' | 'unknown'>> = {
  0: 'drop',
  1: 'accept',
  [-5]: 'return',
};

/** Loads data into a register; a verdict is the rule's decision. */
function put(dreg: number, data: Data<'immediate'>['data'], registers: Registers): Step {
  if (dreg !== 0) {
    registers.load(dreg, certain(data?.value ?? new Uint8Array(4)));
    return 'yes';
  }
  const { code = 1, chain = '' } = data?.verdict ?? {};
  if (code === -1) return 'yes';
  if (code === -2) return 'no';
  if (code === -3 || code === -4) return { kind: code === -3 ? 'jump' : 'goto', chain };
  return { kind: VERDICTS[code & 0xff] ?? VERDICTS[code] ?? 'unknown' };
}
