// What does a link report, and is what it printed a valid report?
import * as z from 'zod/mini';
import { findCidr } from '../net/cidr.ts';
import { findIp } from '../net/ip.ts';
import { convertDown, convertUp, sameLayout } from './convert.ts';
import { CniError, ErrorCode } from './errors.ts';
import { decode, isObject, type JsonObject } from './json.ts';
import { CURRENT_VERSION, incompatible, isSpecVersion, SPEC_VERSIONS, type SpecVersion } from './version.ts';

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

/** The schema of {@link ResultDns}, also used for the `dns` key of configurations. */
export const Dns = z.looseObject({
  nameservers: z.optional(z.array(z.string())),
  domain: z.optional(z.string()),
  search: z.optional(z.array(z.string())),
  options: z.optional(z.array(z.string())),
});

const CidrText = z
  .string()
  .check(z.refine(text => findCidr(text) !== undefined, 'must be an address with a prefix length'));
/** Empty counts as absent, as in the reference. */
const GatewayText = z
  .string()
  .check(z.refine(text => text === '' || findIp(text) !== undefined, 'must be an address'));

/** The schema of {@link ResultRoute}, also used for the `routes` key of IPAM configurations. */
export const Route = z.looseObject({
  dst: CidrText,
  gw: z.optional(GatewayText),
  mtu: z.optional(z.int()),
  advmss: z.optional(z.int()),
  priority: z.optional(z.int()),
  table: z.optional(z.int()),
  scope: z.optional(z.int()),
});

const ResultSchema = z.looseObject({
  interfaces: z.optional(
    z.array(
      z.looseObject({
        name: z.string(),
        mac: z.optional(z.string()),
        mtu: z.optional(z.int()),
        sandbox: z.optional(z.string()),
        socketPath: z.optional(z.string()),
        pciID: z.optional(z.string()),
      }),
    ),
  ),
  ips: z.optional(
    z.array(
      z.looseObject({
        address: CidrText,
        gateway: z.optional(GatewayText),
        interface: z.optional(z.int()),
      }),
    ),
  ),
  routes: z.optional(z.array(Route)),
  dns: z.optional(Dns),
});

/**
 * A result object as a link printed it, brought to the shape of 1.1.0.
 * @param fallback version to assume when the object names none: the configuration's, not 0.1.0 (reference behaviour)
 * @throws CniError 1 for a version that does not exist, 6 for a value of the wrong shape, naming the path
 */
export function parseResult(object: JsonObject, fallback: SpecVersion, what = 'result'): Result {
  const version = resultVersionOf(object, fallback);
  const raised = convertUp(object, version);
  delete raised.cniVersion;
  return decode(ResultSchema, raised, what, ErrorCode.decodingFailure) as Result;
}

/** The version a result object is in: its own, else the fallback. */
export function resultVersionOf(object: JsonObject, fallback: SpecVersion): SpecVersion {
  const own = object.cniVersion;
  if (typeof own !== 'string' || own === '') return fallback;
  if (!isSpecVersion(own)) throw incompatible(own, SPEC_VERSIONS);
  return own;
}

/**
 * The result as a JSON object of the given version, ready to be printed or to become a `prevResult`.
 * @throws CniError 7 when the version cannot express it (0.1.0 and 0.2.0 need an address)
 */
export function renderResult(result: Result, version: SpecVersion): JsonObject {
  return convertDown(result, version);
}

/**
 * A result object of any version, checked and brought to another one; keys we do not know are kept. Between versions
 * that look the same only the label changes.
 * @throws CniError 1 and 6 as {@link parseResult}, 7 as {@link renderResult}
 */
export function convertResult(object: JsonObject, to: SpecVersion): JsonObject {
  const from = resultVersionOf(object, '0.1.0');
  const result = parseResult(object, from);
  return sameLayout(from, to) ? { ...object, cniVersion: to } : renderResult(result, to);
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

/** Version in which intermediate results are kept in memory. */
export const RESULT_VERSION: SpecVersion = CURRENT_VERSION;
