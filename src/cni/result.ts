// What does a link report, and is what it printed a valid report?
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

/** A result in the shape of 1.1.0, whatever version it came in; keys we do not know are kept. */
export interface Result {
  interfaces?: ResultInterface[];
  ips?: ResultIp[];
  routes?: ResultRoute[];
  dns?: ResultDns;
  [unknown: string]: unknown;
}

/**
 * A result object as a link printed it, checked as its own version looks and brought to the shape of 1.1.0.
 * @param fallback version to assume when the object names none: the configuration's, not 0.1.0 (reference behaviour)
 * @throws CniError 1 for a version that does not exist, 6 for a value of the wrong shape, naming the path
 */
export function parseResult(object: JsonObject, fallback: SpecVersion, what = 'result'): Result {
  const { schema, up } = layoutOf(resultVersionOf(object, fallback, what));
  const { cniVersion: _, ...raised } = up(checkObject(schema, object, what, ErrorCode.decodingFailure));
  return raised as Result;
}

/**
 * The version a result object is in: its own, else the fallback.
 * @throws CniError 1 for a version that does not exist
 */
export function resultVersionOf(object: JsonObject, fallback: SpecVersion, what = 'result'): SpecVersion {
  const own = object.cniVersion;
  if (typeof own !== 'string' || own === '') return fallback;
  if (isSpecVersion(own)) return own;
  throw new CniError(
    ErrorCode.incompatibleVersion,
    `Cannot use ${what}: unsupported CNI result version ${JSON.stringify(own)}`,
    { details: `supported are ${SPEC_VERSIONS.join(', ')}` },
  );
}

/**
 * The result as a JSON object of the given version, ready to be printed or to become a `prevResult`. Keys that the
 * version does not have are dropped; 1.1.0's additions survive in 1.0.0, as in the reference.
 * @throws CniError 7 when the version cannot express it (0.1.0 and 0.2.0 need an address)
 */
export function renderResult(result: Result, version: SpecVersion): JsonObject {
  const { cniVersion: _, ...rendered } = layoutOf(version).down(structuredClone(result));
  return { cniVersion: version, ...rendered };
}

/**
 * A result object of any version, checked and brought to another one; keys we do not know are kept. Between versions
 * that look the same only the label changes.
 * @throws CniError 1 and 6 as {@link parseResult}, 7 as {@link renderResult}
 */
export function convertResult(object: JsonObject, to: SpecVersion, what = 'result'): JsonObject {
  const from = resultVersionOf(object, '0.1.0', what);
  const result = parseResult(object, from, what);
  return layoutOf(from) === layoutOf(to) ? { ...object, cniVersion: to } : renderResult(result, to);
}

/**
 * The `prevResult` of a request, or undefined when there is none.
 * @throws CniError when it is not a result
 */
export function prevResultOf(request: JsonObject, version: SpecVersion): Result | undefined {
  const raw = request.prevResult;
  if (raw === undefined || raw === null) return undefined;
  if (!isObject(raw)) {
    throw new CniError(ErrorCode.invalidConfig, 'Cannot use "prevResult": expected an object');
  }
  return parseResult(raw, version, '"prevResult"');
}
