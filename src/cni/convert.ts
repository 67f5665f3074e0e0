// How does a result of one specification version become one of another?
import { findCidr } from '../net/cidr.ts';
import { CniError, ErrorCode } from './errors.ts';
import { isObject, type JsonObject } from './json.ts';
import { atLeast, type SpecVersion } from './version.ts';

/** The three layouts that results have had. */
type Layout = 'ip4' | 'versionedIps' | 'ips';

/** A copy of a result object of `version` in the layout of 1.x. Unknown keys are kept. */
export function convertUp(object: JsonObject, version: SpecVersion): JsonObject {
  return UP[layoutOf(version)](structuredClone(object));
}

/**
 * A copy of a 1.1.0 result in the layout of `version`, with `cniVersion` set to exactly that. Keys that the layout
 * does not have are dropped; 1.1.0's additions survive in 1.0.0, as in the reference.
 * @throws CniError 7 when the layout needs an address and there is none
 */
export function convertDown(result: JsonObject, version: SpecVersion): JsonObject {
  const converted = DOWN[layoutOf(version)](structuredClone(result));
  delete converted.cniVersion;
  return { cniVersion: version, ...converted };
}

/** True when results of both versions look the same but for their label. */
export function sameLayout(a: SpecVersion, b: SpecVersion): boolean {
  return layoutOf(a) === layoutOf(b);
}

function layoutOf(version: SpecVersion): Layout {
  if (atLeast(version, '1.0.0')) return 'ips';
  return atLeast(version, '0.3.0') ? 'versionedIps' : 'ip4';
}

const UP: Record<Layout, (object: JsonObject) => JsonObject> = {
  ip4({ ip4, ip6, ...rest }) {
    const ips: JsonObject[] = [];
    const routes: unknown[] = [];
    for (const family of [ip4, ip6]) {
      if (!isObject(family)) continue;
      const { ip, gateway, routes: own } = family;
      ips.push({ address: ip, ...(gateway ? { gateway } : {}) });
      if (Array.isArray(own)) routes.push(...own);
    }
    return { ...rest, ...(ips.length ? { ips } : {}), ...(routes.length ? { routes } : {}) };
  },
  versionedIps(object) {
    return mapIps(object, ({ version: _, ...ip }) => ip);
  },
  ips: object => object,
};

const DOWN: Record<Layout, (object: JsonObject) => JsonObject> = {
  ip4({ ips, routes, interfaces: _, dns, ...rest }) {
    const families = (['4', '6'] as const).map(version => {
      const first = asObjects(ips).find(ip => familyOf(ip.address) === version);
      if (first === undefined) return undefined;
      const own = asObjects(routes)
        .filter(route => familyOf(route.dst) === version)
        .map(({ dst, gw }) => ({ dst, ...(gw ? { gw } : {}) }));
      return {
        ip: first.address,
        ...(first.gateway ? { gateway: first.gateway } : {}),
        ...(own.length ? { routes: own } : {}),
      };
    });
    const [ip4, ip6] = families;
    if (!ip4 && !ip6) {
      throw new CniError(
        ErrorCode.invalidConfig,
        'Cannot convert result to 0.2.0 or older: no valid IP addresses',
      );
    }
    return { ...rest, ...(ip4 ? { ip4 } : {}), ...(ip6 ? { ip6 } : {}), dns: dns ?? {} };
  },
  versionedIps({ interfaces, dns, ...rest }) {
    const older = asObjects(interfaces).map(({ mtu: _m, socketPath: _s, pciID: _p, ...known }) => known);
    const object = { ...(older.length ? { interfaces: older } : {}), ...rest, dns: dns ?? {} };
    return mapIps(object, ip => ({ version: familyOf(ip.address), ...ip }));
  },
  ips({ dns, ...rest }) {
    // The reference leaves an empty resolver configuration out from 1.0.0 on.
    const empty =
      !isObject(dns) || Object.values(dns).every(v => v === '' || (Array.isArray(v) && !v.length));
    return { ...rest, ...(empty ? {} : { dns }) };
  },
};

function mapIps(object: JsonObject, change: (ip: JsonObject) => JsonObject): JsonObject {
  if (!Array.isArray(object.ips)) return object;
  return { ...object, ips: object.ips.map(ip => (isObject(ip) ? change(ip) : ip)) };
}

function asObjects(value: unknown): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function familyOf(address: unknown): '4' | '6' | undefined {
  const cidr = typeof address === 'string' ? findCidr(address) : undefined;
  return cidr && (`${cidr.ip.family}` as '4' | '6');
}
