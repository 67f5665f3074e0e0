// Does every result survive conversion, and its record on disk?

import { expect, test } from 'bun:test';
import fc from 'fast-check';
import { parseEntry, renderEntry } from '../../src/attachments/entries.ts';
import { acceptResult } from '../../src/chain/run/call-plugins.ts';
import { CniError } from '../../src/cni/errors.ts';
import { isObject, type JsonObject } from '../../src/cni/json.ts';
import { convertResult, parseResult, SPEC_VERSIONS, type SpecVersion } from '../../src/cni/result.ts';
import { anyCapabilityArgs, anyResult, anyVersion, RUNS } from './arbitrary.ts';

const plugin = { network: 'n', type: 'l', index: 0, verb: 'ADD' };
const isOld = (version: SpecVersion) => SPEC_VERSIONS.indexOf(version) < SPEC_VERSIONS.indexOf('0.3.0');

/** The result in another version, or undefined when that one needs an address and there is none. */
function convert(result: JsonObject, to: SpecVersion): JsonObject | undefined {
  try {
    return convertResult(result, to);
  } catch (error) {
    if (!(error instanceof CniError) || error.code !== 7) throw error;
    expect(isOld(to)).toBe(true);
    return undefined;
  }
}

/** Every unknown key below the arrays and objects that all layouts from 0.3.0 on share, with its position. */
function unknownOf(result: JsonObject): string[] {
  const known: Readonly<Record<string, readonly string[]>> = {
    '': ['cniVersion', 'interfaces', 'ips', 'routes', 'dns'],
    interfaces: ['name', 'mac', 'sandbox', 'mtu', 'socketPath', 'pciID'],
    ips: ['version', 'address', 'gateway', 'interface'],
    routes: ['dst', 'gw', 'mtu', 'advmss', 'priority', 'table', 'scope'],
    dns: ['nameservers', 'domain', 'search', 'options'],
  };
  const visit = (value: unknown, where: string, at: string): string[] => {
    if (Array.isArray(value)) return value.flatMap((item, i) => visit(item, where, `${at}[${i}]`));
    if (!isObject(value)) return [];
    return Object.entries(value).flatMap(([key, member]) => {
      if (known[where]?.includes(key)) return where === '' ? visit(member, key, `${at}.${key}`) : [];
      return [`${at}.${key}=${JSON.stringify(member)}`];
    });
  };
  return visit(result, '', '').sort();
}

test('a valid result converts to every version and back to the same result, which plugins may print', () => {
  fc.assert(
    fc.property(anyResult, anyVersion, (result, to) => {
      const before = JSON.stringify(result);
      const once = convert(result, to);
      expect(JSON.stringify(result)).toBe(before);
      if (once === undefined) return;
      expect(once.cniVersion).toBe(to);
      expect(JSON.stringify(convertResult(once, to))).toBe(JSON.stringify(once));
      // It is a valid one of its version: nothing else could be handed to the next plugin.
      parseResult(once, to);
      expect(JSON.stringify(acceptResult(before, to, plugin))).toBe(JSON.stringify(once));
      if (!isOld(result.cniVersion as SpecVersion) && !isOld(to))
        expect(unknownOf(once)).toEqual(unknownOf(result));
    }),
    { numRuns: RUNS },
  );
}, 300_000);

test('a valid result is stable after a round trip', () => {
  fc.assert(
    fc.property(anyResult, anyVersion, anyVersion, (result, there, back) => {
      const round = (one: JsonObject | undefined) => {
        const gone = one && convert(one, there);
        return gone && convert(gone, back);
      };
      // The first way there may only be a new label, so that it is the second that loses what has no place there.
      const settled = round(round(result));
      if (settled !== undefined) expect(JSON.stringify(round(settled))).toBe(JSON.stringify(settled));
    }),
    { numRuns: RUNS / 4 },
  );
}, 300_000);

test('a record on disk contains what was written to it', () => {
  const name = fc.stringMatching(/^[a-z0-9][a-z0-9_.-]{0,6}$/);
  const args = fc.array(fc.tuple(fc.string(), fc.string()), { maxLength: 2 });
  fc.assert(
    fc.property(
      name,
      name,
      args,
      anyCapabilityArgs,
      anyResult,
      fc.string({ minLength: 1 }),
      (network, containerId, args, capabilityArgs, result, source) => {
        const attachment = {
          network,
          containerId,
          ifname: 'eth0',
          netns: '/ns',
          args,
          capabilityArgs,
          // Lone surrogates have no UTF-8: no file can have held them.
          source: Buffer.from(source).toString(),
          result,
        };
        const text = renderEntry(attachment);
        expect(renderEntry(parseEntry(text, 'f', undefined))).toBe(text);
        expect(parseEntry(text, 'f', undefined).source).toBe(attachment.source);
        expect(JSON.parse(text).result).toEqual(JSON.parse(JSON.stringify(result)));
      },
    ),
    { numRuns: RUNS / 4 },
  );
}, 300_000);
