import { expect, test } from 'bun:test';
import type { SceneRecord } from '../../../src/compare/record.ts';
import { withCommonNames } from '../../../src/compare/twin-names.ts';

test('withCommonNames() hides what only one twin has: namespaces, times, names', () => {
  const began = Date.now();
  const files = (ms: number, inode: string) => ({
    [`/run/lock-${inode}`]: `${ms} ${new Date(ms).toISOString()} ${Math.floor(ms / 1000)} 4000000000`,
  });
  const twin = (inode: string, ms: number, mac: string): SceneRecord => ({
    namespaces: { host: inode },
    began,
    ended: began,
    before: { places: { host: { link: { br0: { kind: 'bridge', mac } } } }, files: files(ms, inode) },
    moments: [],
  });
  const one = withCommonNames(twin('4026531840', began, '0a:00:00:00:00:01'), '[]');
  const other = withCommonNames(twin('4026532999', began + 900, '0a:00:00:00:00:02'), '[]');
  expect(one).toEqual(other);
  expect(one.before.files).toEqual({ '/run/lock-{host}': '{time} {time} {time} 4000000000' });
});
