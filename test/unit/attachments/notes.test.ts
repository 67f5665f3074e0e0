import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import {
  begunAdd,
  type KnownAttachment,
  lastBegun,
  parseNote,
  renderNote,
} from '../../../src/attachments/notes.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { intentOf } from '../../helpers/journal.ts';

const FILE = '/state/unsettled/testnet/c1:eth0';
const result = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };
const intent = intentOf();
const begun = (more: Partial<KnownAttachment> = {}) => ({ ...begunAdd(intent, FILE), ...more });
const again = (more?: Partial<KnownAttachment>) => parseNote(renderNote(begun(more)), FILE);

describe('parseNote()', () => {
  test.each([
    ['an ADD that has begun', {}],
    ['how far it came', { segment: 1, result }],
    ['a DEL that has begun', { phase: 'deleting', added: true, result, runners: [intent.runner] }],
    [
      'a change',
      {
        ...{ phase: 'attached', added: true, foreign: true, generation: 'g' },
        change: { to: { capabilityArgs: {}, source: '{}' }, plugins: [1], op: 'x' },
      },
    ],
    [
      'failures',
      {
        ...{ phase: 'failed', attempts: 2, lastAttempt: '2030-01-01' },
        lastErrors: [{ code: 999, msg: 'busy', plugin: 'noop', index: 0 }],
      },
    ],
  ] as [string, Partial<KnownAttachment>][])('returns what renderNote() wrote: %s', (_, more) => {
    expect(again(more)).toEqual(begun(more));
  });

  test('reads a single line of text whatever the configuration contains', () => {
    const source = '{\n  "name": "testnet"\u2028\n}\n';
    expect(again({ source }).source).toBe(source);
  });

  test.each([
    ['nothing', '', 'it is not a JSON object'],
    ['zeros', '\0\0\0\0', 'it is not a JSON object'],
    ['an array', '[]\n', 'it is not a JSON object'],
    ['another kind of file', '{"kind":"cniCacheV1"}\n', 'expected layout 2 in "record", found none'],
    ['an earlier layout', '{"record":1}\n', 'expected layout 2 in "record", found 1'],
    ['half a note', renderNote(begun()).slice(0, 80), 'it is not a JSON object'],
    ['a number for a name', `{"record":2,"network":5}\n`, '"network" must be a non-empty string, found 5'],
  ])('refuses %s', (_, text, reason) => {
    expect(() => parseNote(text, FILE)).toThrow(`Cannot read note "${FILE}": `);
    expect(() => parseNote(text, FILE)).toThrow(reason);
  });

  test('throws nothing but a CniError', () => {
    const fields = JSON.parse(renderNote(begun({ result })));
    const hostile = fc.tuple(fc.constantFrom(...Object.keys(fields)), fc.jsonValue());
    fc.assert(
      fc.property(fc.array(hostile, { maxLength: 3 }), changes => {
        try {
          const record = parseNote(JSON.stringify({ ...fields, ...Object.fromEntries(changes) }), FILE);
          expect(['adding', 'attached', 'deleting', 'failed']).toContain(record.phase);
          expect(lastBegun(record, 3)).toBeLessThan(3);
        } catch (error) {
          expect(error).toBeInstanceOf(CniError);
        }
      }),
      { numRuns: 2000 },
    );
  });
});

test.each([
  ['nothing has begun', -1, -1],
  ['the first has begun', 0, 0],
  ['two were called together', 1, 1],
  ['more were than there are', 7, 2],
])('lastBegun() is found when %s', (_, segment, expected) => {
  expect(lastBegun(again({ segment }), 3)).toBe(expected);
  expect(lastBegun(again({ segment, added: true }), 3)).toBe(2);
});
