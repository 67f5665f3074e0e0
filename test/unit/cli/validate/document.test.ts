// Is the habit named that broke the JSON?
import { expect, test } from 'bun:test';
import { adviseOnSyntax } from '../../../../src/cli/validate/document.ts';
import { findSyntaxProblem } from '../../../../src/cni/json-place.ts';

test.each([
  ['{"a":1,}', '; JSON has no comma after the last value'],
  ['[1,2,\n]', '; JSON has no comma after the last value'],
  ['{"a":1 "b":2}', '; a comma is missing before it'],
  ['[{"type":"bridge"}\n{"type":"portmap"}]', '; a comma is missing before it'],
  ['{// c\n"a":1}', '; JSON has no comments'],
  ['{"a":1} # c', '; JSON has no comments'],
  ["{'a':1}", '; JSON wants double quotes'],
  ['{a:1}', '; JSON wants keys in double quotes'],
  ['\ufeff{"a":1}', '; save the file without a byte order mark'],
  ['{"a":tru}', ''],
  ['{"a":1', ''],
])('%p: %p', (text, advice) => {
  const problem = findSyntaxProblem(text);
  expect(problem && adviseOnSyntax(text, problem)).toBe(advice);
});
