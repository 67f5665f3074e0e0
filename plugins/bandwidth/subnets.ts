// Which traffic is limited, if not all of it?

import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { isObject, memberOf } from '../../src/cni/json.ts';
import { type Cidr, FAMILIES, findCidr, renderCidr, subnetOf } from '../../src/net/ip.ts';

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
    throw new CniError(
      ErrorCode.invalidConfig,
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
  return new CniError(ErrorCode.invalidConfig, `Cannot use "${key}": ${state}`);
}
