// What does a plugin report, is it valid, and how is it converted from one specification version to another?

import type * as z from 'zod/mini';
import {
  type Cidr,
  type Family,
  findCidr,
  type Ip,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
} from '../net/ip.ts';
import { CniError, ErrorCode, invalidConfig } from './errors.ts';
import { checkObject, isObject, type JsonObject, memberOf, objectsIn } from './json.ts';
import { FamiliesResult, IpsResult, VersionedIpsResult } from './schemas.ts';

/** Every released specification version, oldest first. */
export const SPEC_VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'] as const;

/** One of the released specification versions. */
export type SpecVersion = (typeof SPEC_VERSIONS)[number];

/** The newest version that this library supports. */
export const CURRENT_VERSION: SpecVersion = '1.1.0';

/** The first version in which each feature may be used. */
export const SINCE = { check: '0.4.0', prevResultOnDel: '0.4.0', gc: '1.1.0', status: '1.1.0' } as const;

/** True for the exact text of a released version; `"1.0"` is not one, as in the reference. */
export function isSpecVersion(text: string): text is SpecVersion {
  return (SPEC_VERSIONS as readonly string[]).includes(text);
}

/** True when `version` is `since` or newer. Both must be released versions, ordered as in the table. */
export function atLeast(version: SpecVersion, since: SpecVersion): boolean {
  return SPEC_VERSIONS.indexOf(version) >= SPEC_VERSIONS.indexOf(since);
}

/** Error 1 with the reference's wording, which other software matches. */
export function incompatible(version: string, supported: readonly string[]): CniError {
  return new CniError(ErrorCode.incompatibleVersion, 'incompatible CNI versions', {
    details: `config is ${JSON.stringify(version)}, plugin supports [${supported.map(v => JSON.stringify(v)).join(' ')}]`,
  });
}

/** The result layout of some versions, and its conversion to and from that of 1.x. Unknown keys are kept both ways. */
interface Layout {
  readonly schema: z.ZodMiniType<Record<string, unknown>>;
  /** Converts from a checked object of this layout with keys in the schema's letter case. Does not modify its argument. */
  up(object: JsonObject): JsonObject;
  /** Converts to this layout and drops what the layout cannot hold. Does not modify its argument. */
  down(result: JsonObject): JsonObject;
}

export function layoutOf(version: SpecVersion): Layout {
  if (atLeast(version, '1.0.0')) return IPS;
  return atLeast(version, '0.3.0') ? VERSIONED_IPS : ONE_IP_EACH;
}

/** 0.1.0 and 0.2.0. */
const ONE_IP_EACH: Layout = {
  schema: FamiliesResult,
  up({ ip4, ip6, ips: _ips, routes: _routes, interfaces: _interfaces, ...rest }) {
    const families = [ip4, ip6].filter(isObject);
    const ips = families.map(({ ip, gateway, routes: _, ...more }) => ({
      address: ip,
      ...(gateway ? { gateway } : {}),
      ...more,
    }));
    const routes = families.flatMap(family => asObjects(family.routes));
    return { ...rest, ...(ips.length ? { ips } : {}), ...(routes.length ? { routes } : {}) };
  },
  down({ ips, routes, interfaces: _, dns, ip4: _ip4, ip6: _ip6, ...rest }) {
    const families = { ip4: downToFamily('4', ips, routes), ip6: downToFamily('6', ips, routes) };
    if (!families.ip4 && !families.ip6) {
      throw invalidConfig('Cannot convert result to 0.2.0 or older: no valid IP addresses');
    }
    const present = Object.entries(families).filter(([, family]) => family !== undefined);
    return { ...rest, ...Object.fromEntries(present), dns: withoutEmptyMembers(dns) };
  },
};

/** 0.3.0, 0.3.1 and 0.4.0. */
const VERSIONED_IPS: Layout = {
  schema: VersionedIpsResult,
  up: object => mapMembers(object, 'ips', ({ version: _, ...ip }) => ip),
  down({ dns, ...rest }) {
    const older = mapMembers(rest, 'interfaces', ({ mtu: _m, socketPath: _s, pciID: _p, ...known }) => known);
    const families = mapMembers(older, 'ips', ({ version: _, ...ip }) => ({
      version: familyOf(ip.address),
      ...ip,
    }));
    return { ...withoutEmptyArrays(families), dns: withoutEmptyMembers(dns) };
  },
};

/** 1.0.0 and 1.1.0. Fields added in 1.1.0 survive in 1.0.0, as in the reference. */
const IPS: Layout = {
  schema: IpsResult,
  up: object => object,
  // The reference omits an empty resolver configuration from 1.0.0 on.
  down({ dns, ...rest }) {
    const settings = withoutEmptyMembers(dns);
    return { ...withoutEmptyArrays(rest), ...(Object.keys(settings).length ? { dns: settings } : {}) };
  },
};

/** The family's first address, and the routes to destinations of that family. Older routes only have `dst` and `gw`. */
function downToFamily(version: '4' | '6', ips: unknown, routes: unknown): JsonObject | undefined {
  const first = asObjects(ips).find(ip => familyOf(ip.address) === version);
  if (first === undefined) return undefined;
  const { address, gateway, interface: _i, version: _v, ...more } = first;
  const own = asObjects(routes)
    .filter(route => familyOf(route.dst) === version)
    .map(({ gw, gws: _g, mtu: _m, advmss: _a, priority: _p, table: _t, scope: _s, ...route }) => ({
      ...route,
      ...(gw ? { gw } : {}),
    }));
  return {
    ip: address,
    ...(gateway ? { gateway } : {}),
    ...more,
    ...(own.length ? { routes: own } : {}),
  };
}

function mapMembers(object: JsonObject, key: string, change: (member: JsonObject) => JsonObject): JsonObject {
  const { [key]: members } = object;
  return Array.isArray(members) ? { ...object, [key]: asObjects(members).map(change) } : object;
}

function withoutEmptyArrays(object: JsonObject): JsonObject {
  const isLeftOut = (key: string) => ['interfaces', 'ips', 'routes'].includes(key);
  const kept = Object.entries(object).filter(([key, value]) => !(isLeftOut(key) && isEmptyArray(value)));
  return Object.fromEntries(kept);
}

/** Resolver settings as the reference prints them: empty known settings are omitted, unknown keys are kept. */
function withoutEmptyMembers(dns: unknown): JsonObject {
  if (!isObject(dns)) return {};
  const isNothing = (value: unknown) => value === undefined || value === '' || isEmptyArray(value);
  return Object.fromEntries(
    Object.entries(dns).filter(([key, value]) => !DNS_SETTINGS.includes(key) || !isNothing(value)),
  );
}

const DNS_SETTINGS = ['nameservers', 'domain', 'search', 'options'];

function isEmptyArray(value: unknown): boolean {
  return Array.isArray(value) && !value.length;
}

function asObjects(value: unknown): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function familyOf(address: unknown): '4' | '6' | undefined {
  const cidr = typeof address === 'string' ? findCidr(address) : undefined;
  return cidr && (`${cidr.ip.family}` as '4' | '6');
}

/** An interface that exists because of the attachment (SPEC "Success"). `sandbox` is absent or empty on the host. */
export interface ResultInterface {
  name: string;
  mac?: string;
  /** Bytes; 1.1.0. */
  mtu?: number;
  sandbox?: string;
  socketPath?: string;
  pciID?: string;
}

/** An address of the attachment. `interface` is an index into `interfaces`; -1 or absent means unknown. */
export interface ResultIp {
  /** CIDR notation, host bits kept. */
  address: string;
  gateway?: string;
  interface?: number;
}

/** The addresses in what may be a result of any version. Those up to 0.2.0 have one of each family. */
export function addressesTold(result: unknown): string[] {
  const older = ['ip4', 'ip6'].flatMap(key => (isObject(result) ? [memberOf(result, key)] : []));
  const told = [
    ...objectsIn(result, 'ips').map(({ address }) => address),
    ...older.filter(isObject).map(({ ip }) => ip),
  ];
  return told.filter(text => typeof text === 'string');
}

/** An address as a result has it. @param index of its interface among those of the result */
export function resultIp(
  { cidr, gateway }: { readonly cidr: Cidr; readonly gateway?: Ip | undefined },
  index?: number,
): ResultIp {
  return {
    address: renderCidr(cidr),
    ...(gateway ? { gateway: renderIp(gateway) } : {}),
    ...(index === undefined ? {} : { interface: index }),
  };
}

/** The addresses that may belong to an interface of the container: its own, and those that name none. */
export function ipsFor({ ips = [], interfaces }: Result, ifname: string): ResultIp[] {
  return ips.filter(({ interface: index }) => {
    const own = index === undefined ? undefined : interfaces?.[index];
    return own === undefined || (own.name === ifname && Boolean(own.sandbox));
  });
}

/** A route inside the container. `scope` 0 global, 253 link, 254 host. */
export interface ResultRoute {
  dst: string;
  gw?: string;
  /** Next hops of one route, besides `gw`; proposed for the specification (containernetworking/cni#1188). */
  gws?: string[];
  mtu?: number;
  advmss?: number;
  priority?: number;
  table?: number;
  scope?: number;
}

/** RT_TABLE_MAIN of linux/rtnetlink.h, which is also what the kernel makes of 0. */
const MAIN_TABLE = 254;

export function isInMainTable({ table }: Pick<ResultRoute, 'table'>): boolean {
  return !table || table === MAIN_TABLE;
}

/** The family of a default route; undefined for any other route, such as one to everywhere in another table. */
export function defaultFamilyOf(route: Pick<ResultRoute, 'dst' | 'table'>): Family | undefined {
  const cidr = isInMainTable(route) ? findCidr(route.dst) : undefined;
  return cidr?.prefix === 0 ? cidr.ip.family : undefined;
}

/** Resolver settings that the runtime may apply. */
export interface ResultDns {
  nameservers?: string[] | undefined;
  domain?: string | undefined;
  search?: string[] | undefined;
  options?: string[] | undefined;
}

/** A result in the shape of 1.1.0, whatever its original version; unknown keys are kept. */
export interface Result {
  interfaces?: ResultInterface[];
  ips?: ResultIp[];
  routes?: ResultRoute[];
  dns?: ResultDns;
  [unknown: string]: unknown;
}

/** An address in results of 0.3.0 to 0.4.0, which state the family. */
export interface ResultIpWithFamily extends ResultIp {
  version: '4' | '6';
}

/** The address of one family in results of 0.1.0 and 0.2.0. */
export interface ResultFamily {
  /** CIDR notation, host bits kept. */
  ip: string;
  gateway?: string;
  routes?: ResultRoute[];
}

/** 0.3.0, 0.3.1 and 0.4.0. */
interface ResultWithVersionedIps extends Result {
  cniVersion: '0.3.0' | '0.3.1' | '0.4.0';
  ips?: ResultIpWithFamily[];
}

/** 0.1.0 and 0.2.0: at most one address of each family, no interfaces. */
interface ResultWithFamilies {
  cniVersion: '0.1.0' | '0.2.0';
  ip4?: ResultFamily;
  ip6?: ResultFamily;
  ips?: undefined;
  routes?: undefined;
  interfaces?: undefined;
  dns?: ResultDns;
  [unknown: string]: unknown;
}

/**
 * A result in the layout of its version, as a runtime receives it. `cniVersion` distinguishes the layouts;
 * {@link parseResult} converts any of them to a {@link Result}.
 */
export type ResultOf<V extends SpecVersion = SpecVersion> = V extends '0.1.0' | '0.2.0'
  ? ResultWithFamilies & { cniVersion: V }
  : V extends '0.3.0' | '0.3.1' | '0.4.0'
    ? ResultWithVersionedIps & { cniVersion: V }
    : Result & { cniVersion: V };

/**
 * Parses a result object as a plugin printed it: checks it against the layout of its own version and converts it to the
 * shape of 1.1.0.
 * @param fallback version to assume when the object names none: the configuration's, not 0.1.0 (reference behaviour). What
 * `addNetwork` returns always names one
 * @throws CniError 1 for a version that does not exist or is not named, 6 for a value of the wrong shape, naming the path
 */
export function parseResult(object: JsonObject, fallback?: SpecVersion, what = 'result'): Result {
  const { schema, up } = layoutOf(resultVersionOf(object, fallback, what));
  const { cniVersion: _, ...raised } = up(checkObject(schema, object, what, ErrorCode.decodingFailure));
  return raised as Result;
}

/**
 * The version of a result object: the one that it states, else the fallback.
 * @throws CniError 1 for a version that does not exist, or if there is none
 */
export function resultVersionOf(object: JsonObject, fallback?: SpecVersion, what = 'result'): SpecVersion {
  const own = object.cniVersion;
  const isNamed = typeof own === 'string' && own !== '';
  if (!isNamed && fallback !== undefined) return fallback;
  if (!isNamed)
    throw new CniError(ErrorCode.incompatibleVersion, `Cannot use ${what}: it has no "cniVersion"`);
  if (isSpecVersion(own)) return own;
  throw new CniError(
    ErrorCode.incompatibleVersion,
    `Cannot use ${what}: unsupported CNI result version ${JSON.stringify(own)}`,
    { details: `supported are ${SPEC_VERSIONS.join(', ')}` },
  );
}

/**
 * Renders the result as a JSON object of the given version, ready to be printed or passed as `prevResult`. Keys that the
 * version does not have are dropped; fields added in 1.1.0 survive in 1.0.0, as in the reference.
 * @throws CniError 7 when the version cannot express it (0.1.0 and 0.2.0 need an address)
 */
export function renderResult(result: Result, version: SpecVersion): JsonObject {
  const { cniVersion: _, ...rendered } = layoutOf(version).down(structuredClone(result));
  return { cniVersion: version, ...rendered };
}

/**
 * Checks a result object of any version and converts it to another version; unknown keys are kept. Between versions with
 * the same layout only `cniVersion` changes.
 * @throws CniError 1 and 6 as {@link parseResult}, 7 as {@link renderResult}
 */
export function convertResult(object: JsonObject, to: SpecVersion, what = 'result'): JsonObject {
  const from = resultVersionOf(object, '0.1.0', what);
  const result = parseResult(object, from, what);
  return layoutOf(from) === layoutOf(to) ? { ...object, cniVersion: to } : renderResult(result, to);
}

/**
 * The `prevResult` of a request, or undefined when there is none.
 * @throws CniError when it is not a valid result
 */
export function prevResultOf(request: JsonObject, version: SpecVersion): Result | undefined {
  const raw = request.prevResult;
  if (raw === undefined || raw === null) return undefined;
  if (!isObject(raw)) {
    throw invalidConfig('Cannot use "prevResult": expected an object');
  }
  return parseResult(raw, version, '"prevResult"');
}

/** A configured route; the schema `Route` has already checked its texts. */
interface ConfiguredRoute {
  readonly dst: string;
  readonly gw?: string | undefined;
  readonly gws?: readonly string[] | undefined;
  readonly [more: string]: unknown;
}

/** The routes in canonical text: host bits are kept, an empty gateway is dropped, an IPv4-mapped one becomes IPv4. */
export function renderRoutes(routes: readonly ConfiguredRoute[]): ResultRoute[] {
  const render = (text: string) => renderIp(parseIp(text));
  return routes.map(({ dst, gw, gws, ...rest }) => ({
    ...rest,
    dst: renderCidr(parseCidr(dst)),
    ...(gw ? { gw: render(gw) } : {}),
    ...(gws?.length ? { gws: gws.filter(text => text !== '').map(render) } : {}),
  }));
}

/**
 * The routes with one gateway each: those of `gws`, then `gw` unless it is one of them. The routes of one destination become a multipath
 * route when they are added.
 */
export function spreadGateways(routes: readonly ResultRoute[]): ResultRoute[] {
  return routes.flatMap(({ gws = [], gw, ...route }) => {
    const gateways = [...new Set([...gws, ...(gw ? [gw] : [])])].filter(text => text !== '');
    return gateways.length ? gateways.map(gateway => ({ ...route, gw: gateway })) : [route];
  });
}
