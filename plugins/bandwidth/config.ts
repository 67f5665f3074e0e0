// What may be configured, and which limits follow from it?

import * as z from 'zod/mini';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { decode, defined, isObject, type JsonObject, memberOf } from '../../src/cni/json.ts';
import { Bandwidth, PluginConfig } from '../../src/cni/schemas.ts';
import { type Cidr, FAMILIES, findCidr, renderCidr, subnetOf } from '../../src/net/ip.ts';

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
  const refuse = (state: string) => invalidConfig(`Cannot use "${key}": "${text}": ${state}`);
  const [, number, prefix = '', unit = '', perSecond] = AMOUNT.exec(text) ?? [];
  if (number === undefined) {
    throw refuse('expected a number of bits, or a string such as "10Mbit", "1.5Gbit" or "64KiB"');
  }
  if (perSecond && key.toLowerCase().endsWith('burst')) throw refuse('a burst is an amount, not a rate');
  const bits = Math.round(Number(number) * (PREFIXES[prefix] ?? 1) * (UNITS[unit] ?? 1));
  if (!Number.isSafeInteger(bits)) throw refuse(`it must be at most ${Number.MAX_SAFE_INTEGER} bits`);
  return bits;
}

/** Subnets of the remote end of a connection, and whether they are limited; the opposite applies to all other traffic. */
export interface Subnets {
  readonly are: 'shaped' | 'unshaped';
  /** Without host bits or duplicates; at least one. */
  readonly subnets: readonly Cidr[];
}

/** Keys of the two lists. */
const SUBNET_KEYS = { shaped: 'shapedSubnets', unshaped: 'unshapedSubnets' } as const;

/** The kernel numbers filters with twelve bits, in one table per family. */
const MAX_PER_FAMILY = 4_000;

/**
 * The lists of the configuration, or the runtime's if it has none; undefined if everything is limited.
 * @param sources objects that may have the lists, in order of precedence
 * @throws CniError 7
 */
export function findSubnets(sources: readonly unknown[]): Subnets | undefined {
  for (const source of sources) {
    if (!isObject(source)) continue;
    const [shaped, unshaped] = [memberOf(source, SUBNET_KEYS.shaped), memberOf(source, SUBNET_KEYS.unshaped)];
    if ((shaped ?? unshaped ?? undefined) === undefined) continue;
    return planSubnets(
      parseSubnets(SUBNET_KEYS.shaped, shaped),
      parseSubnets(SUBNET_KEYS.unshaped, unshaped),
    );
  }
  return undefined;
}

function planSubnets(shaped: readonly Cidr[], unshaped: readonly Cidr[]): Subnets | undefined {
  if (shaped.length && unshaped.length) {
    throw invalidConfig(
      'Cannot use "shapedSubnets": unshapedSubnets and shapedSubnets cannot be both specified; ' +
        'remove one of them',
    );
  }
  if (shaped.length) return { are: 'shaped', subnets: shaped };
  return unshaped.length ? { are: 'unshaped', subnets: unshaped } : undefined;
}

function parseSubnets(key: string, list: unknown): Cidr[] {
  if (list === undefined || list === null) return [];
  if (!Array.isArray(list)) throw refuse(key, `it must be a list of subnets, found ${JSON.stringify(list)}`);
  const subnets = new Map<string, Cidr>();
  for (const text of list) {
    const cidr = typeof text === 'string' ? findCidr(text) : undefined;
    if (cidr === undefined) {
      const expected = 'expected one such as "10.0.0.0/8" or "fd00::/8"';
      throw refuse(key, `bad subnet ${JSON.stringify(text)} provided, ${expected}`);
    }
    const subnet = subnetOf(cidr);
    subnets.set(renderCidr(subnet), subnet);
  }
  const all = [...subnets.values()];
  for (const family of FAMILIES) {
    const { length } = all.filter(({ ip }) => ip.family === family);
    if (length > MAX_PER_FAMILY) {
      throw refuse(key, `it has ${length} IPv${family} subnets, the kernel accepts ${MAX_PER_FAMILY}`);
    }
  }
  return all;
}

function refuse(key: string, state: string): CniError {
  return invalidConfig(`Cannot use "${key}": ${state}`);
}

export const LIMIT_OPTIONS: readonly string[] = ['ingressRate', 'ingressBurst', 'egressRate', 'egressBurst'];

const LIMIT_KEYS: ReadonlySet<string> = new Set(Object.keys(Bandwidth.shape).map(key => key.toLowerCase()));

/** The kernel counts a bucket's bytes in 32 bits; the reference's limit is one byte lower. */
const BURST_BYTES_MAX = 2 ** 32 - 2;

/**
 * The request as bandwidth sees it. Numbers are validated when a limit is to be set ({@link limitsOf}), so an attachment can
 * still be deleted after its configuration has become invalid.
 */
export const BandwidthConf = z.extend(PluginConfig, {
  /** Bits per second towards the container, or a string such as `"10Mbit"`; 0 or absent: unlimited. */
  ingressRate: z.optional(z.unknown()),
  /** Bits that may exceed `ingressRate` at once (the token bucket), or a string such as `"64KiB"`. */
  ingressBurst: z.optional(z.unknown()),
  /** Bits per second from the container, or a string; 0 or absent: unlimited. */
  egressRate: z.optional(z.unknown()),
  /** Bits that may exceed `egressRate` at once (the token bucket), or a string. */
  egressBurst: z.optional(z.unknown()),
  /** IPv4 and IPv6 subnets; only traffic with these is limited. */
  shapedSubnets: z.optional(z.unknown()),
  /** IPv4 and IPv6 subnets; all traffic except that with these is limited. Excludes `shapedSubnets`. */
  unshapedSubnets: z.optional(z.unknown()),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `bandwidth`: the same keys. Rates and bursts are used when the configuration itself has none of
       * the four, subnets when it has neither list. */
      bandwidth: z.optional(z.unknown()),
    }),
  ),
});
export type BandwidthConf = z.output<typeof BandwidthConf>;

/** A limit for one direction; numbers are above zero. */
export interface Limit {
  readonly rateBits: number;
  /** Absent if it is to be derived from the rate. */
  readonly burstBits?: number;
}

/** Limits from the container's point of view; absent means unlimited. */
export interface Limits {
  /** Towards the container. */
  readonly ingress?: Limit;
  /** From the container. */
  readonly egress?: Limit;
  /** Absent if the limits apply to all traffic. */
  readonly subnets?: Subnets;
}

/**
 * The limits of a request. If the configuration itself has any of the four keys, even as 0 or null, it is used as a whole and the
 * runtime's values are ignored (reference behaviour).
 * @param request as received: null members count, but the decoded configuration no longer has them
 * @throws CniError 7
 */
export function limitsOf(conf: BandwidthConf, request: JsonObject): Limits {
  const numbers = hasOwnLimits(request)
    ? decode(Bandwidth, withoutUnits(conf), 'bandwidth limits')
    : runtimeLimitsOf(conf);
  const ingress = limitOf('ingress', numbers.ingressRate, numbers.ingressBurst);
  const egress = limitOf('egress', numbers.egressRate, numbers.egressBurst);
  if (ingress === undefined && egress === undefined) return {};
  const subnets = findSubnets([conf, conf.runtimeConfig?.bandwidth]);
  return defined({ ingress, egress, subnets });
}

/** The runtime's rates and bursts in bits. @throws CniError 7 */
export function runtimeLimitsOf({ runtimeConfig }: BandwidthConf): Bandwidth {
  return decode(Bandwidth, withoutUnits(runtimeConfig?.bandwidth ?? {}), '"runtimeConfig.bandwidth"');
}

/** True when the runtime passes limits for the container but the configuration's own keys override them. */
export function ignoresRuntime(conf: BandwidthConf, request: JsonObject): boolean {
  const asked = conf.runtimeConfig?.bandwidth;
  if (!hasOwnLimits(request) || !isObject(asked)) return false;
  return Object.entries(asked).some(([key, value]) => Boolean(value) && LIMIT_KEYS.has(key.toLowerCase()));
}

/** True when nothing is to be limited. */
export function isUnlimited({ ingress, egress }: Limits): boolean {
  return ingress === undefined && egress === undefined;
}

function hasOwnLimits(request: JsonObject): boolean {
  return Object.keys(request).some(key => LIMIT_KEYS.has(key.toLowerCase()));
}

/** The limits with every string converted to bits; values of other types are left to the schema. */
function withoutUnits(source: unknown): unknown {
  if (typeof source !== 'object' || source === null || Array.isArray(source)) return source;
  return Object.fromEntries(
    Object.entries(source).map(([key, value]) => [
      key,
      typeof value === 'string' && LIMIT_KEYS.has(key.toLowerCase()) ? parseAmount(key, value) : value,
    ]),
  );
}

function limitOf(direction: 'ingress' | 'egress', rateBits = 0, burstBits = 0): Limit | undefined {
  if (rateBits === 0 && burstBits === 0) return undefined;
  const [rate, burst] = [`"${direction}Rate" ${rateBits}`, `"${direction}Burst" ${burstBits}`];
  if (rateBits === 0) throw invalidConfig(`Cannot use ${burst}: if burst is set, rate must also be set`);
  if (rateBits < 8) {
    throw invalidConfig(`Cannot use ${rate}: the kernel counts whole bytes, the smallest rate is 8 bit/s`);
  }
  if (Math.floor(burstBits / 8) > BURST_BYTES_MAX) {
    throw invalidConfig(
      `Cannot use ${burst}: burst cannot be more than 4GB (${BURST_BYTES_MAX * 8 + 7} bits)`,
    );
  }
  return { rateBits, ...(burstBits === 0 ? {} : { burstBits }) };
}
