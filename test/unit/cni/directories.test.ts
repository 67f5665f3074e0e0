import { expect, test } from 'bun:test';
import { cacheDirOf } from '../../../src/cni/directories.ts';

test('cacheDirOf() uses the option, then the variable, then the path of the reference', () => {
  const env = { CATENA_CNI_CACHE_DIR: '/from/env' };
  expect(cacheDirOf({ env, cacheDir: '/given' })).toBe('/given');
  expect(cacheDirOf({ env })).toBe('/from/env');
  expect(cacheDirOf({ env: {} })).toBe('/var/lib/cni');
});
