import { expect, test } from 'bun:test';
import * as z from 'zod/mini';
import { parseConflist } from '../../../src/cni/conflist.ts';
import { ConflistSchema } from '../../../src/cni/conflist-schema.ts';
import type { JsonObject } from '../../../src/cni/json.ts';

const PLUGINS = [{ type: 'bridge', capabilities: { mac: true }, ipam: {}, own: 1 }];
const GOOD = { cniVersion: '1.1.0', name: 'podnet', plugins: PLUGINS };

const VALUES: Readonly<Record<string, readonly unknown[]>> = {
  name: ['a', '9', 'a.b_c-d', 'A', '', '.a', '-a', 'a/b', '../x', 'a b', 'a\n', 'ä', 5, null, undefined, []],
  cniVersion: ['', '1.0.0', undefined, 1, null, []],
  cniVersions: [[], ['1.0.0'], undefined, '1.0.0', [1], null],
  disableCheck: [true, false, 'true', 'FALSE', 'tRuE', undefined, 'yes', '', 1, null, 'true '],
  disableGC: [true, 'false', 0, null],
  loadOnlyInlinedPlugins: [true, 'true', {}, null],
  plugins: [
    ...[undefined, [], null, {}, 'bridge'],
    ...[[5], [null], [{}], [{ type: '' }], [{ type: 5 }], [{ type: 'a' }, 'b']],
    ...[
      [{ type: 'a', capabilities: ['x'] }],
      [{ type: 'a', capabilities: { x: 1 } }],
      [{ type: 'a', ipam: 'b' }],
    ],
    ...[
      [{ type: 'a', dns: { search: 'b' } }],
      [{ type: 'a', name: 5 }],
      [{ type: '../a', ipam: { type: 'b' } }],
    ],
  ],
  other: [1, null, {}],
};

const CASES = Object.entries(VALUES).flatMap(([key, values]) =>
  values.map(value => ({ ...GOOD, [key]: value })),
);

test.each(CASES.map(list => [JSON.stringify(list), list] as const))(
  'ConflistSchema accepts and refuses the same as parseConflist(): %s',
  (_, list) => {
    const given = Object.fromEntries(Object.entries(list).filter(([, value]) => value !== undefined));
    expect(z.safeParse(ConflistSchema, given).success).toBe(isTaken(given));
  },
);

function isTaken(list: JsonObject): boolean {
  try {
    parseConflist(list);
    return true;
  } catch {
    return false;
  }
}
