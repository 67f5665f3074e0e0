// What does a plugin report, and is what it printed a valid result?
import { layoutOf } from './convert.ts';
import { CniError, ErrorCode } from './errors.ts';
import { checkObject, isObject, type JsonObject } from './json.ts';
import { isSpecVersion, SPEC_VERSIONS, type SpecVersion } from './version.ts';

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

/** 1.0.0 and 1.1.0. */
interface ResultWithIps extends Result {
  cniVersion: '1.0.0' | '1.1.0';
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
    : ResultWithIps & { cniVersion: V };

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
    throw new CniError(ErrorCode.invalidConfig, 'Cannot use "prevResult": expected an object');
  }
  return parseResult(raw, version, '"prevResult"');
}
