// How is a result converted from one specification version to another?
import type * as z from 'zod/mini';
import { findCidr } from '../net/cidr.ts';
import { CniError, ErrorCode } from './errors.ts';
import { isObject, type JsonObject } from './json.ts';
import { FamiliesResult, IpsResult, VersionedIpsResult } from './result-schema.ts';
import { atLeast, type SpecVersion } from './version.ts';

/** The result layout of some versions, and its conversion to and from that of 1.x. Unknown keys are kept both ways. */
export interface Layout {
  readonly schema: z.ZodMiniType<Record<string, unknown>>;
  /** Converts from a checked object of this layout with keys in the schema's letter case. Does not modify its argument. */
  up(object: JsonObject): JsonObject;
  /** Converts to this layout and drops what the layout cannot hold. Does not modify its argument. */
  down(result: JsonObject): JsonObject;
}

/** The result layout of a version. */
export function layoutOf(version: SpecVersion): Layout {
  if (atLeast(version, '1.0.0')) return IPS;
  return atLeast(version, '0.3.0') ? VERSIONED_IPS : FAMILIES;
}

/** 0.1.0 and 0.2.0. */
const FAMILIES: Layout = {
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
      throw new CniError(
        ErrorCode.invalidConfig,
        'Cannot convert result to 0.2.0 or older: no valid IP addresses',
      );
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
  const empty = ['interfaces', 'ips', 'routes'].filter(key => {
    const { [key]: members } = object;
    return Array.isArray(members) && !members.length;
  });
  if (!empty.length) return object;
  const copy = { ...object };
  for (const key of empty) delete copy[key];
  return copy;
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
