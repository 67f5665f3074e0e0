// Does every configuration survive loading and derivation, whatever is in it?

import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { type PluginEntry, parseNetwork } from '../../src/chain/config/conflist.ts';
import { listNetworks, loadFile } from '../../src/chain/config/load.ts';
import { buildGcRequest, buildRequest } from '../../src/chain/run/call-plugins.ts';
import type { CniError } from '../../src/cni/errors.ts';
import { isObject, type JsonObject } from '../../src/cni/json.ts';
import { findSyntaxProblem } from '../../src/cni/json-place.ts';
import { isRuntimeKey } from '../../src/cni/schemas.ts';
import { anyCapabilityArgs, anyList, anyPlugin, RUNS, unknownMembers } from './arbitrary.ts';

/** What the caller offers and the plugin declares; what the file says when that is nothing. */
function runtimeConfigFor({ conf, capabilities }: PluginEntry, offered: JsonObject): unknown {
  const names = Object.keys(capabilities).filter(name => capabilities[name] && Object.hasOwn(offered, name));
  return names.length ? Object.fromEntries(names.map(name => [name, offered[name]])) : conf.runtimeConfig;
}

let dir: string;
beforeAll(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-property-'));
});
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** Keys that the runtime sets or may take away. */
const RUNTIME_KEYS = ['name', 'cniVersion', 'prevResult', 'runtimeConfig'];
/** toEqual() takes `__proto__` for the prototype: as text every key counts. */
const textsOf = (all: readonly JsonObject[]) => JSON.stringify(all);
const textOf = (object: JsonObject, without: readonly string[] = []) =>
  JSON.stringify(Object.entries(object).filter(([key]) => !without.includes(key)));

test('a valid list loads, and gives every plugin its own keys and those of the runtime, which take precedence', () => {
  fc.assert(
    fc.property(anyList, unknownMembers, anyCapabilityArgs, (list, prevResult, capabilityArgs) => {
      const text = JSON.stringify(list);
      const network = parseNetwork(text);
      const written = JSON.parse(text).plugins as JsonObject[];
      expect(network.source).toBe(text);
      expect(textsOf(network.plugins.map(({ conf }) => conf))).toBe(textsOf(written));
      expect(JSON.stringify(parseNetwork(network.source))).toBe(JSON.stringify(network));
      for (const entry of network.plugins) {
        const request = buildRequest(network, entry, { prevResult, capabilityArgs });
        const sent = JSON.stringify(request);
        const gcKeys = Object.keys(buildGcRequest(network, entry, [])).filter(isRuntimeKey);
        expect([
          textOf(request, RUNTIME_KEYS),
          request.name,
          request.cniVersion,
          JSON.stringify(request.prevResult),
          JSON.stringify(request.runtimeConfig),
          // What is sent is what arrives.
          JSON.stringify(JSON.parse(sent)),
          gcKeys.length,
        ]).toEqual([
          textOf(entry.conf, RUNTIME_KEYS),
          network.name,
          network.version,
          JSON.stringify(prevResult),
          JSON.stringify(runtimeConfigFor(entry, capabilityArgs)),
          sent,
          2,
        ]);
      }
      expect(textsOf(network.plugins.map(({ conf }) => conf))).toBe(textsOf(written));
    }),
    { numRuns: RUNS },
  );
}, 300_000);

test('a single plugin becomes a list that contains it unchanged', () => {
  fc.assert(
    fc.property(anyPlugin, conf => {
      const { cniVersions: _v, disableCheck: _c, disableGC: _g, plugins: _p, ...single } = conf;
      const plugin = { ...single, name: 'n', cniVersion: '1.0.0' };
      const network = parseNetwork(JSON.stringify(plugin));
      expect(network.plugins.map(entry => JSON.stringify(entry.conf))).toEqual([JSON.stringify(plugin)]);
      expect(JSON.stringify(parseNetwork(network.source))).toBe(JSON.stringify(network));
    }),
    { numRuns: RUNS / 4 },
  );
}, 300_000);

describe('any JSON at all', () => {
  test('reports an error with its position if a file contains it', () => {
    const file = path.join(dir, 'one', 'x.conflist');
    fs.mkdirSync(path.dirname(file));
    const broken = fc.tuple(anyList, fc.nat(), fc.string({ maxLength: 2 })).map(([list, at, junk]) => {
      const text = JSON.stringify(list, null, 1);
      const cut = at % (text.length + 1);
      return text.slice(0, cut) + junk + text.slice(cut + (at % 3));
    });
    fc.assert(
      fc.property(broken, text => {
        fs.writeFileSync(file, text);
        const isJson = findSyntaxProblem(text) === undefined;
        try {
          JSON.parse(text);
          expect(isJson).toBe(true);
        } catch {
          expect(isJson).toBe(false);
        }
        try {
          expect(isObject(loadFile(file).plugins[0]?.conf)).toBe(true);
        } catch (error) {
          expect((error as CniError).message).toMatch(/line \d+, column \d+: /);
        }
        const { networks, diagnostics } = listNetworks(path.dirname(file));
        expect(networks.length + diagnostics.filter(({ severity }) => severity === 'error').length).toBe(1);
      }),
      { numRuns: RUNS / 10 },
    );
  }, 300_000);
});
