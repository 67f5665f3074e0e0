import { expect, test } from 'bun:test';
import { currentUser } from '../../../src/doctor/user.ts';

const filesOf = (map: string) => (path: string) => (path.endsWith('uid_map') ? map : '65534\n');

test('currentUser() knows every user outside of user namespaces', () => {
  expect(currentUser(filesOf('         0          0 4294967295\n')).unknown).toBeUndefined();
  expect(currentUser(() => undefined).unknown).toBeUndefined();
});

test('currentUser() shows the id of users that a user namespace does not know', () => {
  expect(currentUser(filesOf('0 1000 1\n')).unknown).toBe(65_534);
  expect(currentUser(filesOf('0 1000 1\n1 100000 65536\n')).unknown).toBe(65_534);
});
