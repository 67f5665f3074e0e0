// Are the rules a table that can be relied on?
import { expect, test } from 'bun:test';
import { RULES } from '../../../src/conformance/examine.ts';

test('every rule has a unique id', () => {
  const ids = RULES.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.filter(id => !/^[a-z]+(\/[a-z-]+)$/.test(id))).toEqual([]);
});

test('rules over all replies come last', () => {
  const first = RULES.findIndex(({ id }) => /^(reply|process)\//.test(id));
  expect(RULES.slice(first).filter(({ id }) => !/^(reply|process)\//.test(id))).toEqual([]);
});

test('every rule names its source', () => {
  const sources = /^(SPEC: |reference skeleton$|conventions: |good practice$)/;
  expect(RULES.filter(({ source }) => !sources.test(source)).map(({ id }) => id)).toEqual([]);
  const courtesy = RULES.filter(
    ({ level, source }) => level === 'must' && !/^(SPEC|conventions)/.test(source),
  );
  expect(courtesy.map(({ id }) => id)).toEqual([]);
});
