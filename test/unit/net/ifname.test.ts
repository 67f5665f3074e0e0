import { expect, test } from 'bun:test';
import { findIfnameProblem } from '../../../src/net/ifname.ts';

test.each(['eth0', 'a', 'fifteen-bytes-x', 'eth0.100', 'back\\slash', 'ä', '\u200b', '...'])(
  'findIfnameProblem() accepts %j',
  name => {
    expect(findIfnameProblem(name)).toBeUndefined();
  },
);

test.each([
  ['', 'is empty'],
  ['sixteen-bytes-xx', 'longer than 15 bytes'],
  ['ääääääää', 'longer than 15 bytes'],
  ['.', '"." or ".."'],
  ['..', '"." or ".."'],
  ['a/b', 'must not contain'],
  ['a:b', 'must not contain'],
  ['a b', 'must not contain'],
  ['a\tb', 'must not contain'],
  ['eth0\n', 'must not contain'],
  ['a\u0085b', 'must not contain'],
  ['a\u00a0b', 'must not contain'],
  ['a\u3000b', 'must not contain'],
  ['a\0b', 'must not contain'],
  ['net%d', 'must not contain "%"'],
  ['100%', 'must not contain "%"'],
  ['all', 'stands for'],
  ['default', 'stands for'],
])('findIfnameProblem() refuses %j', (name, problem) => {
  expect(findIfnameProblem(name)).toContain(problem);
});
