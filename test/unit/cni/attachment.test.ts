import { describe, expect, test } from 'bun:test';
import { findContainerIdProblem } from '../../../src/cni/attachment.ts';

describe('findContainerIdProblem()', () => {
  test.each(['a', '0', 'cnitool-0a.b_C', 'a'.repeat(500)])('accepts %j', id => {
    expect(findContainerIdProblem(id)).toBeUndefined();
  });

  test.each(['', '-a', '.a', '_a', 'a/b', 'a b', 'a:b', 'a\n', 'ä', '..'])('refuses %j', id => {
    expect(findContainerIdProblem(id)).toContain('it must start with a letter or digit');
  });
});
