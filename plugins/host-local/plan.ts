// What is this attachment to get, before free addresses are looked up?

import { type CniArgs, pickCniArgs } from '../../src/cni/env.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import {
  atLeast,
  type Result,
  type ResultDns,
  type ResultIp,
  type ResultRoute,
  renderRoutes,
  type SpecVersion,
} from '../../src/cni/result.ts';
import type { IpRange } from '../../src/cni/schemas.ts';
import { findCidr, findIp, type Ip, renderCidr, renderIp, sameIp } from '../../src/net/ip.ts';
import type { Allocation, Wanted } from './allocate.ts';
import type { HostLocalConf } from './config.ts';
import { findRange, parseRangeSets, type RangeSet } from './range.ts';

/** What to allocate: one address from each set, specific ones if requested, and routes. */
export interface Plan extends Wanted {
  readonly routes: readonly ResultRoute[];
}

/**
 * Combines all sources: range sets from `ipRanges`, then the single range, then `ranges`; addresses from `CNI_ARGS`, then `args`,
 * then `runtimeConfig`.
 * @throws CniError 7 for a configuration that cannot work, 4 for `CNI_ARGS`
 */
export function planAllocation(conf: HostLocalConf, args: CniArgs, version: SpecVersion): Plan {
  return {
    sets: planSets(conf, version),
    requested: planRequested(conf, args),
    routes: renderRoutes(conf.ipam.routes ?? []),
  };
}

/** The range sets in the order in which they are numbered. */
export function planSets(conf: HostLocalConf, version: SpecVersion): RangeSet[] {
  const { subnet, ranges = [] } = conf.ipam;
  const single = subnet ? [[singleRange(conf.ipam, subnet)]] : [];
  const sets = asInvalidConfig(() =>
    parseRangeSets([...(conf.runtimeConfig?.ipRanges ?? []), ...single, ...ranges]),
  );
  if (sets.length === 0) throw invalidConfig('Cannot allocate addresses: the configuration has no ranges');
  const families = sets.map(([range]) => range.start.family);
  if (!atLeast(version, '0.3.0') && new Set(families).size < families.length) {
    throw invalidConfig(
      `Cannot use several range sets of one family: version ${version} allows one, 0.3.0 and newer allow more`,
    );
  }
  return sets;
}

function singleRange(ipam: HostLocalConf['ipam'], subnet: string): IpRange {
  const { rangeStart = '', rangeEnd = '', gateway = '', exclude, addresses } = ipam;
  return { subnet, rangeStart, rangeEnd, gateway, exclude, addresses };
}

/** The result of an ADD: addresses in the order of their sets. */
export function planResult(
  allocations: readonly Allocation[],
  plan: Plan,
  dns: ResultDns | undefined,
): Result {
  const ips = allocations.map(({ ip, range }) => ({
    address: renderCidr({ ip, prefix: range.subnet.prefix }),
    ...(range.gateway ? { gateway: renderIp(range.gateway) } : {}),
  }));
  return { ips, ...(plan.routes.length ? { routes: [...plan.routes] } : {}), ...defined({ dns }) };
}

/**
 * Addresses that a result reports for the attachment but that are not leased to it. Those that other plugins added are ignored,
 * unless none of the addresses is ours.
 */
export function findUnleased(
  sets: readonly RangeSet[],
  ips: readonly ResultIp[],
  leased: readonly string[],
): string[] {
  const reported = ips.flatMap(({ address }) => findCidr(address)?.ip ?? []);
  const unleased = reported.filter(ip => !leased.includes(renderIp(ip)));
  const ours = unleased.filter(ip => sets.some(set => findRange(set, ip)));
  return (unleased.length === reported.length ? unleased : ours).map(renderIp);
}

/** The leases to restore for addresses that are reported but not leased; addresses in no set are ignored. */
export function planLeases(
  sets: readonly RangeSet[],
  addresses: readonly string[],
): { readonly ip: Ip; readonly setIndex: number }[] {
  return addresses.flatMap(address => {
    const ip = findIp(address);
    const setIndex = ip === undefined ? -1 : sets.findIndex(set => findRange(set, ip));
    return ip === undefined || setIndex < 0 ? [] : [{ ip, setIndex }];
  });
}

function planRequested(conf: HostLocalConf, args: CniArgs): Ip[] {
  const { IP: fromArgs } = pickCniArgs(args, ['IP']);
  const sources: [string, number, readonly string[]][] = [
    ['CNI_ARGS "IP"', ErrorCode.invalidEnvironment, fromArgs ? [fromArgs] : []],
    ['"args.cni.ips"', ErrorCode.invalidConfig, conf.args?.cni?.ips ?? []],
    ['"runtimeConfig.ips"', ErrorCode.invalidConfig, conf.runtimeConfig?.ips ?? []],
  ];
  const requested: Ip[] = [];
  for (const [source, code, texts] of sources) {
    for (const text of texts) {
      const ip = findIp(text) ?? findCidr(text)?.ip;
      if (ip === undefined) {
        throw new CniError(
          code,
          `Cannot use ${source}: ${JSON.stringify(text)} is not an IP address, with or without prefix length`,
        );
      }
      if (!requested.some(other => sameIp(other, ip))) requested.push(ip);
    }
  }
  return requested;
}

function asInvalidConfig<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new CniError(ErrorCode.invalidConfig, (cause as Error).message, { cause });
  }
}

function invalidConfig(message: string): CniError {
  return new CniError(ErrorCode.invalidConfig, message);
}
