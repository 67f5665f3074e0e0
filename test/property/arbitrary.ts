// Which random configurations and results do the property tests use?
import fc from 'fast-check';
import type { JsonObject } from '../../src/cni/json.ts';
import { SPEC_VERSIONS, type SpecVersion } from '../../src/cni/result.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';

/** Cases of each property; a failure prints the seed and path with which `fc.assert` shows it again. */
export const RUNS = Number(process.env.CATENA_PROPERTY_RUNS ?? (IS_SAMPLE ? 2_000 : 10_000));

/** A released version. */
export const anyVersion: fc.Arbitrary<SpecVersion> = fc.constantFrom(...SPEC_VERSIONS);

/** Any JSON value, odd keys included. */
export const anyJson: fc.Arbitrary<unknown> = fc.jsonValue({ depthSize: 'xsmall', maxDepth: 2 });

/** Keys that mean nothing to us, some of them with a meaning to JavaScript, some nearly known. */
const unknownKey = fc.oneof(
  { weight: 6, arbitrary: fc.stringMatching(/^x-[a-zA-Z0-9._/ -]{0,8}$/) },
  { weight: 2, arbitrary: fc.constantFrom('__proto__', 'constructor', 'toString', 'x-é', '0', '', 'x-"\\') },
);

/** Members that must survive whatever is done to the object that has them. */
export const unknownMembers: fc.Arbitrary<JsonObject> = fc
  .array(fc.tuple(unknownKey, anyJson), { maxLength: 2 })
  .map(entries => Object.fromEntries(entries));

const ip4 = fc.tuple(fc.ipV4(), fc.nat(32)).map(([ip, prefix]) => `${ip}/${prefix}`);
const ip6 = fc
  .tuple(fc.array(fc.integer({ min: 0, max: 0xffff }), { minLength: 8, maxLength: 8 }), fc.nat(128))
  .map(([groups, prefix]) => `${groups.map(group => group.toString(16)).join(':')}/${prefix}`);
const cidr = fc.oneof(ip4, ip6);
const gateway = fc.oneof(fc.ipV4(), fc.constant(''), fc.constant('fd00::1'));

/** An object of these members, each of which may be absent or null, with unknown ones beside them. */
function someOf(members: Record<string, fc.Arbitrary<unknown>>, required: readonly string[] = []) {
  const optional = Object.entries(members).map(([key, value]) => {
    return [
      key,
      required.includes(key)
        ? value
        : fc.oneof({ weight: 9, arbitrary: value }, { weight: 1, arbitrary: fc.constant(null) }),
    ] as const;
  });
  return fc
    .tuple(fc.record(Object.fromEntries(optional), { requiredKeys: [...required] }), unknownMembers)
    .map(([known, unknown]): JsonObject => ({ ...unknown, ...known }));
}

const texts = fc.array(fc.string({ maxLength: 6 }), { maxLength: 2 });
const dns = someOf({
  nameservers: texts,
  domain: fc.string({ maxLength: 6 }),
  search: texts,
  options: texts,
});
const number = fc.integer();
const route = someOf(
  { dst: cidr, gw: gateway, mtu: number, advmss: number, priority: number, table: number, scope: number },
  ['dst'],
);
const routes = fc.array(route, { maxLength: 2 });
const iface = someOf(
  {
    name: fc.string({ maxLength: 5 }),
    mac: fc.string({ maxLength: 5 }),
    sandbox: fc.string({ maxLength: 5 }),
    mtu: number,
    socketPath: fc.string({ maxLength: 5 }),
    pciID: fc.string({ maxLength: 5 }),
  },
  ['name'],
);
const interfaces = fc.array(iface, { maxLength: 2 });
const index = fc.integer({ min: -1, max: 3 });

const oldestIp = (address: fc.Arbitrary<string>) => someOf({ ip: address, gateway, routes }, ['ip']);
const oldest = someOf({ ip4: oldestIp(ip4), ip6: oldestIp(ip6), dns });
const versioned = fc.oneof(
  ip4.map(address => ({ version: '4', address })),
  ip6.map(address => ({ version: '6', address })),
);
const versionedIp = fc
  .tuple(versioned, someOf({ gateway, interface: index }))
  .map(([address, more]): JsonObject => ({ ...more, ...address }));
const ip = someOf({ address: cidr, gateway, interface: index }, ['address']);

/** A valid result of a version, in its layout. */
export function resultOf(version: SpecVersion): fc.Arbitrary<JsonObject> {
  const old = SPEC_VERSIONS.indexOf(version) < SPEC_VERSIONS.indexOf('0.3.0');
  const plain = SPEC_VERSIONS.indexOf(version) >= SPEC_VERSIONS.indexOf('1.0.0');
  const ips = fc.array(plain ? ip : versionedIp, { maxLength: 3 });
  const body = old ? oldest : someOf({ interfaces, ips, routes, dns });
  return body.map(object => ({ ...object, cniVersion: version }));
}

/** A valid result of any version. */
export const anyResult: fc.Arbitrary<JsonObject> = anyVersion.chain(resultOf);

const networkName = fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,8}$/);
const capabilityName = fc.constantFrom('portMappings', 'bandwidth', 'ips', 'mac', 'toString', '__proto__');

/** The configuration of one plugin. */
export const anyPlugin: fc.Arbitrary<JsonObject> = someOf(
  {
    type: fc.stringMatching(/^[a-z][a-z-]{0,8}$/),
    name: fc.string({ maxLength: 4 }),
    cniVersion: fc.string({ maxLength: 4 }),
    capabilities: fc.dictionary(capabilityName, fc.boolean(), { maxKeys: 3 }),
    ipam: someOf({ type: fc.string({ maxLength: 4 }) }),
    dns,
    runtimeConfig: anyJson,
    prevResult: unknownMembers,
  },
  ['type'],
);

const flag = fc.constantFrom<unknown>(true, false, 'true', 'FALSE', 'True');

/** A valid list. */
export const anyList: fc.Arbitrary<JsonObject> = fc
  .tuple(
    fc.record(
      {
        name: networkName,
        plugins: fc.array(anyPlugin, { minLength: 1, maxLength: 3 }),
        cniVersion: anyVersion,
        cniVersions: fc.array(anyVersion, { maxLength: 3 }),
        disableCheck: flag,
        disableGC: flag,
        loadOnlyInlinedPlugins: flag,
      },
      { requiredKeys: ['name', 'plugins', 'cniVersion'] },
    ),
    unknownMembers,
  )
  .map(([known, unknown]): JsonObject => ({ ...unknown, ...known }));

/** What a caller offers by capability. */
export const anyCapabilityArgs: fc.Arbitrary<JsonObject> = fc.dictionary(capabilityName, anyJson, {
  maxKeys: 3,
});
