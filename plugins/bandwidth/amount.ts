// How many bits does a string such as "10Mbit" denote?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';

const PREFIXES: Readonly<Record<string, number>> = {
  '': 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
};
const UNITS: Readonly<Record<string, number>> = { bit: 1, B: 8 };

/** A number with its unit. Rates are per second, which may be written explicitly. */
export const AMOUNT = /^(\d+(?:\.\d+)?) ?(k|[MGT]|[KMGT]i|)(bit|B)(\/s)?$/;

/**
 * Bits denoted by a string: `10Mbit`, `1.5 Gbit/s`, `500kbit`, and bytes as `64KiB`, `1MB`. `Mb` and `bps` are rejected: tools
 * disagree on whether they count bits or bytes.
 * @param key named in errors
 * @throws CniError 7
 */
export function parseAmount(key: string, text: string): number {
  const refuse = (state: string) =>
    new CniError(ErrorCode.invalidConfig, `Cannot use "${key}": "${text}": ${state}`);
  const [, number, prefix = '', unit = '', perSecond] = AMOUNT.exec(text) ?? [];
  if (number === undefined) {
    throw refuse('expected a number of bits, or a string such as "10Mbit", "1.5Gbit" or "64KiB"');
  }
  if (perSecond && key.toLowerCase().endsWith('burst')) throw refuse('a burst is an amount, not a rate');
  const bits = Math.round(Number(number) * (PREFIXES[prefix] ?? 1) * (UNITS[unit] ?? 1));
  if (!Number.isSafeInteger(bits)) throw refuse(`it must be at most ${Number.MAX_SAFE_INTEGER} bits`);
  return bits;
}
