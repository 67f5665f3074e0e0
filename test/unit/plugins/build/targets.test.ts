import { expect, test } from 'bun:test';
import lock from '../../../../package-lock.json' with { type: 'json' };
import { TARGETS } from '../../../../plugins/build/targets.ts';

test('every system has its Bun executable in the lockfile, with a checksum', () => {
  const packages = new Map<string, object>(Object.entries(lock.packages));
  const missing = TARGETS.filter(
    ({ runtime }) => !('integrity' in (packages.get(`node_modules/${runtime}`) ?? {})),
  );
  expect(missing).toEqual([]);
  expect(new Set(TARGETS.map(({ loader }) => loader)).size).toBe(TARGETS.length);
});
