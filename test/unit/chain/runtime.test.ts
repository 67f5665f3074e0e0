import { expect, test } from 'bun:test';
import { cacheDirOf, linkEnv } from '../../../src/chain/runtime.ts';

test('cacheDirOf() takes the option, then the variable, then the place of the reference', () => {
  const env = { CATENA_CNI_CACHE_DIR: '/from/env' };
  expect(cacheDirOf({ pluginDirs: [], env, cacheDir: '/given' })).toBe('/given');
  expect(cacheDirOf({ pluginDirs: [], env })).toBe('/from/env');
  expect(cacheDirOf({ pluginDirs: [], env: {} })).toBe('/var/lib/cni');
});

test('linkEnv() sets all six variables over inherited ones, empty where there is nothing to say', () => {
  const env = { CNI_NETNS: 'inherited', CNI_NETNS_OVERRIDE: '1', TRACEPARENT: 't' };
  expect(linkEnv('STATUS', { pluginDirs: ['/a', '/b'], env })).toEqual({
    CNI_COMMAND: 'STATUS',
    CNI_CONTAINERID: '',
    CNI_NETNS: '',
    CNI_IFNAME: '',
    CNI_ARGS: '',
    CNI_PATH: '/a:/b',
    CNI_NETNS_OVERRIDE: '1',
    TRACEPARENT: 't',
  });
});
