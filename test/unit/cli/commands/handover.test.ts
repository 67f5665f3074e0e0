import { expect, test } from 'bun:test';
import { referenceDirs } from '../../../../src/cli/commands/handover.ts';

test('referenceDirs() are those that have its bridge, and are not our own', () => {
  const there = ['/usr/lib/cni/bridge', '/usr/libexec/cni/bridge'];
  const isThere = (path: string) => there.includes(path);
  expect(referenceDirs(['/opt/cni/bin'], isThere)).toEqual(['/usr/lib/cni', '/usr/libexec/cni']);
  expect(referenceDirs(['/usr/libexec/cni'], isThere)).toEqual(['/usr/lib/cni']);
  expect(referenceDirs(['/opt/cni/bin'], () => false)).toEqual([]);
});
