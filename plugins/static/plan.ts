// Which addresses does the attachment get from the sources that may name some?
import { type CniArgs, pickCniArgs } from '../../src/cni/env.ts';
import { CniError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import {
  atLeast,
  type Result,
  type ResultIp,
  renderRoutes,
  resultIp,
  type SpecVersion,
} from '../../src/cni/result.ts';
import {
  type Cidr,
  cidrContains,
  findCidr,
  findIp,
  type Ip,
  renderCidr,
  renderIp,
  sameIp,
} from '../../src/net/ip.ts';
import type { StaticConf } from './config.ts';

export interface PlannedAddress {
  readonly cidr: Cidr;
  readonly gateway: Ip | undefined;
}

/**
 * Combines all sources: the configured addresses and those of `CNI_ARGS`; or those of `args.cni.ips` instead; or those of
 * `runtimeConfig.ips` instead. Everything is parsed, even if it is not used. Duplicates count once.
 * @throws CniError 7 for text that is not an address, 4 if it is in `CNI_ARGS`
 */
export function planAddresses(conf: StaticConf, args: CniArgs, version: SpecVersion): PlannedAddress[] {
  const configured = (conf.ipam.addresses ?? []).map(({ address, gateway }, i) => ({
    cidr: readCidr(address, `"ipam.addresses[${i}].address"`),
    gateway: gateway ? readIp(gateway, `"ipam.addresses[${i}].gateway"`) : undefined,
  }));
  const env = pickCniArgs(args, ['IP', 'GATEWAY']);
  const fromEnv = splitList(env.IP).map(text => bare(readCidr(text, 'CNI_ARGS "IP"', BAD_ARGS)));
  const gateways = splitList(env.GATEWAY).map(text => readIp(text, 'CNI_ARGS "GATEWAY"', BAD_ARGS));
  const fromArgs = conf.args?.cni?.ips?.map(text => bare(readCidr(text, '"args.cni.ips"')));
  const fromRuntime = conf.runtimeConfig?.ips?.map(text => {
    return bare(prefixed(text, configured) ?? readCidr(text, '"runtimeConfig.ips"'));
  });

  const replacing = fromRuntime?.length ? fromRuntime : fromArgs?.length ? fromArgs : undefined;
  // The reference drops configured gateways here, which leaves a requested address without a route to the outside.
  const known = [...configured.flatMap(({ gateway }) => gateway ?? []), ...gateways];
  const addresses = replacing
    ? replacing.map(one => withGateway(one, known))
    : [...configured, ...fromEnv].map(one => withGateway(one, gateways));
  return refuseSeveral(withoutTwins(addresses), version);
}

export function planResult(conf: StaticConf, addresses: readonly PlannedAddress[]): Result {
  const ips = addresses.map(one => resultIp(one));
  const routes = renderRoutes(conf.ipam.routes ?? []);
  return {
    ...(ips.length ? { ips } : {}),
    ...(routes.length ? { routes } : {}),
    ...defined({ dns: conf.ipam.dns }),
  };
}

/**
 * Addresses that the result does not report as given, human-readable. A gateway that is not configured may come from the plugin
 * that called.
 */
export function findDifferences(
  addresses: readonly PlannedAddress[],
  reported: readonly ResultIp[],
): string[] {
  return addresses.flatMap(({ cidr, gateway }) => {
    const found = reported.find(({ address }) => address === renderCidr(cidr));
    if (found === undefined) {
      return `address ${renderCidr(cidr)}: the result has ${reported.map(ip => ip.address).join(', ') || 'none'}`;
    }
    const other = found.gateway ? findIp(found.gateway) : undefined;
    if (gateway === undefined || (other && sameIp(other, gateway))) return [];
    return `gateway ${renderIp(gateway)} of ${renderCidr(cidr)}: the result has ${found.gateway || 'none'}`;
  });
}

const BAD_ARGS = ErrorCode.invalidEnvironment;

function bare(cidr: Cidr): PlannedAddress {
  return { cidr, gateway: undefined };
}

/** An address alone, as podman passes it, in the configured subnet that contains it. */
function prefixed(text: string, configured: readonly PlannedAddress[]): Cidr | undefined {
  const ip = findIp(text);
  const within = ip && configured.find(({ cidr }) => cidrContains(cidr, ip));
  return within && { ip, prefix: within.cidr.prefix };
}

function withGateway({ cidr, gateway }: PlannedAddress, known: readonly Ip[]): PlannedAddress {
  return {
    cidr,
    gateway: gateway ?? known.findLast(ip => cidrContains(cidr, ip)),
  };
}

/** The kernel accepts an address only once. Either duplicate may carry the gateway. */
function withoutTwins(addresses: readonly PlannedAddress[]): PlannedAddress[] {
  const byText = new Map<string, PlannedAddress>();
  for (const { cidr, gateway } of addresses) {
    const text = renderCidr(cidr);
    byText.set(text, { cidr, gateway: byText.get(text)?.gateway ?? gateway });
  }
  return [...byText.values()];
}

function refuseSeveral(addresses: PlannedAddress[], version: SpecVersion): PlannedAddress[] {
  const families = new Set(addresses.map(({ cidr }) => cidr.ip.family));
  if (families.size === addresses.length || atLeast(version, '0.3.0')) return addresses;
  throw invalidConfig(
    `Cannot report several addresses of one family: version ${version} allows one, 0.3.0 and newer allow more`,
  );
}

function splitList(text: string | undefined): string[] {
  return text ? text.split(',') : [];
}

function readCidr(text: string, where: string, code: number = ErrorCode.invalidConfig): Cidr {
  const cidr = findCidr(text);
  if (cidr) return cidr;
  throw new CniError(code, `Cannot use ${where}: ${JSON.stringify(text)} must be address/prefix`);
}

function readIp(text: string, where: string, code: number = ErrorCode.invalidConfig): Ip {
  const ip = findIp(text);
  if (ip) return ip;
  throw new CniError(code, `Cannot use ${where}: ${JSON.stringify(text)} must be an IP address`);
}
