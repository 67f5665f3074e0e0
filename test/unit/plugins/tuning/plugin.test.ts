import { describe, expect, test } from 'bun:test';
import { findRepeatedKey } from '../../../../plugins/tuning/plugin.ts';

describe('findRepeatedKey()', () => {
  const table: [text: string, found: string | undefined][] = [
    ['{"sysctl": {"a": "1", "b": "2", "a": "3"}}', 'a'],
    ['{"x": [1, {"a": 1}], "SysCtl": {"a": "1", "\\u0061": "3"}}', 'a'],
    ['{"sysctl": {"a": "b", "b": "a"}}', undefined],
    ['{"sysctl": {"a": {"b": 1}, "c": {"b": 1}}}', undefined],
    ['{"other": {"a": "1", "a": "3"}, "sysctl": {}}', undefined],
    ['{"args": {"sysctl": {"a": "1", "a": "3"}}}', undefined],
    ['{"sysctl": {"a": "\\"a\\": {", "b": "}"}, "sysctl2": ["a", "a"]}', undefined],
    ['{"sysctl": null, "a": true, "a": -1.5e3}', undefined],
    ['{}', undefined],
  ];
  for (const [text, found] of table) {
    test(text, () => expect(findRepeatedKey(text, 'sysctl')).toBe(found));
  }
});
