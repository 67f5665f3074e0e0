// How long is a tick of the packet scheduler?
import { readFileSync } from 'node:fs';
import { s16, u8, u16, u32 } from '../../codec/attrs.ts';
import { struct } from '../../codec/message.ts';

/** Ticks of 64 ns: the unit of every kernel since 2.6.31. */
const USUAL_TICKS_PER_US = 1000 / 64;

/** Ticks per microsecond on this kernel, read once. Same as: what `tc` computes from /proc/net/psched */
export function ticksPerUs(): number {
  known ??= readTicksPerUs();
  return known;
}

let known: number | undefined;

/** Like {@link ticksPerUs}, from a file. */
export function readTicksPerUs(path = '/proc/net/psched'): number {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    // Some sandboxes hide the file, but the unit is part of the kernel's interface.
    return USUAL_TICKS_PER_US;
  }
  return parsePsched(text);
}

/**
 * The four hexadecimal words of /proc/net/psched: nanoseconds per µs, nanoseconds per tick, clock ticks per second and
 * the timer's resolution.
 * @throws Error when the text is something else
 */
export function parsePsched(text: string): number {
  const [perUs = Number.NaN, perTick = Number.NaN, clock = Number.NaN] = text
    .trim()
    .split(/\s+/)
    .map(word => Number.parseInt(word, 16));
  // A clock in nanoseconds means that a tick and a µs are counted in the same unit (iproute2, tc_core_init).
  const tickUnit = clock === 1_000_000_000 ? perUs : perTick;
  const ticksPerUs = ((perUs / tickUnit) * clock) / 1_000_000;
  if (Number.isFinite(ticksPerUs) && ticksPerUs > 0) return ticksPerUs;
  throw new Error(`Cannot read the packet scheduler's clock: found ${JSON.stringify(text)}`);
}

/**
 * linux/pkt_sched.h: struct tc_ratespec { unsigned char cell_log; __u8 linklayer; unsigned short overhead;
 * short cell_align; unsigned short mpu; __u32 rate; }
 */
export const tcRatespec = struct('tc_ratespec', [
  ['cellLog', u8],
  ['linklayer', u8],
  ['overhead', u16],
  ['cellAlign', s16],
  ['mpu', u16],
  ['rate', u32], // bytes per second
]);

type Ratespec = ReturnType<typeof tcRatespec.decode>;

const U32_MAX = 0xffffffff;

/** The rate's lower 32 bits, which is all that fits here. */
export function rateSpec(rateBytes: number): Ratespec {
  return { ...tcRatespec.zero, rate: rateBytes % (U32_MAX + 1) };
}

/** The value of the additional 64-bit attribute, for a rate that does not fit. */
export function rate64Of(rateBytes: number): bigint | undefined {
  return rateBytes > U32_MAX ? BigInt(rateBytes) : undefined;
}

/** Decodes both into bytes per second. */
export function rateOf({ rate }: Ratespec, rate64: bigint | undefined): number {
  return rate64 === undefined ? rate : Number(rate64);
}
