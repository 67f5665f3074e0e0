// What may be configured, and which limits follow from it?
import * as z from 'zod/mini';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { decode, defined, isObject, type JsonObject } from '../../src/cni/json.ts';
import { Bandwidth, PluginConfig } from '../../src/cni/schemas.ts';
import { parseAmount } from './amount.ts';
import { findSubnets, type Subnets } from './subnets.ts';

/** Rates and bursts. */
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
  const isStatic = hasOwnLimits(request);
  const source = isStatic ? conf : (conf.runtimeConfig?.bandwidth ?? {});
  const what = isStatic ? 'bandwidth limits' : '"runtimeConfig.bandwidth"';
  const numbers = decode(Bandwidth, withoutUnits(source), what);
  const ingress = limitOf('ingress', numbers.ingressRate, numbers.ingressBurst);
  const egress = limitOf('egress', numbers.egressRate, numbers.egressBurst);
  if (ingress === undefined && egress === undefined) return {};
  const subnets = findSubnets([conf, conf.runtimeConfig?.bandwidth]);
  return defined({ ingress, egress, subnets });
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
  if (rateBits === 0) throw invalid(`Cannot use ${burst}: if burst is set, rate must also be set`);
  if (rateBits < 8) {
    throw invalid(`Cannot use ${rate}: the kernel counts whole bytes, the smallest rate is 8 bit/s`);
  }
  if (Math.floor(burstBits / 8) > BURST_BYTES_MAX) {
    throw invalid(`Cannot use ${burst}: burst cannot be more than 4GB (${BURST_BYTES_MAX * 8 + 7} bits)`);
  }
  return { rateBits, ...(burstBits === 0 ? {} : { burstBits }) };
}

function invalid(message: string): CniError {
  return new CniError(ErrorCode.invalidConfig, message);
}
