import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { CniError } from '../../../src/cni/errors.ts';
import { lastBegun, parseRecord, renderIntent, renderLine } from '../../../src/journal/lines.ts';
import type { Line } from '../../../src/journal/record.ts';
import { intentOf } from '../../helpers/journal.ts';

const intent = intentOf();
const { op } = intent.runner;
const FILE = '/state/attachments/testnet/c1:eth0';
const result = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };
const ok = (index: number): Line => ({ event: 'link', verb: 'ADD', index, result });
const textOf = (...lines: Line[]) => [renderIntent(intent), ...lines.map(renderLine)].join('');
const recordOf = (...lines: Line[]) => parseRecord(textOf(...lines), FILE);

describe('parseRecord()', () => {
  test('returns what renderIntent() wrote', () => {
    const { file, phase, ...rest } = recordOf();
    expect({ file, phase }).toEqual({ file: FILE, phase: 'adding' });
    expect(rest).toMatchObject({ ...intent, outcomes: [], runners: [intent.runner], unreadable: 0 });
  });

  test('reads a single line of text whatever the configuration contains', () => {
    const source = '{\n  "name": "testnet"\u2028\n}\n';
    expect(parseRecord(renderIntent({ ...intent, source }), FILE).source).toBe(source);
  });

  test('returns phase, outcomes and result', () => {
    const error = { code: 7, msg: 'no', link: 'noop', index: 2 };
    const failed: Line = { event: 'link', verb: 'ADD', index: 2, error };
    const record = recordOf(ok(0), { event: 'link', verb: 'ADD', index: 1, same: true }, failed);
    expect(record).toMatchObject({ phase: 'adding', added: false, result });
    expect(record.outcomes.map(one => one.error ?? one.result)).toEqual([result, result, error]);
    expect(recordOf(ok(0), { event: 'done', op })).toMatchObject({ phase: 'attached', runners: [], result });
  });

  test('returns how often a DEL has failed, and that another one has begun', () => {
    const runner = { ...intent.runner, op: 'other' };
    const errors = [{ code: 999, msg: 'busy' }];
    const failed: Line = {
      event: 'failed',
      verb: 'DEL',
      op: 'other',
      time: '2030-01-01',
      attempts: 1,
      errors,
    };
    const lines: Line[] = [ok(0), { event: 'done', op }, { event: 'begin', verb: 'DEL', runner }];
    expect(recordOf(...lines)).toMatchObject({ phase: 'deleting', added: true, runners: [runner] });
    const again = { event: 'begin', verb: 'DEL', runner: { ...runner, op: 'third' } } as const;
    expect(recordOf(...lines, failed, again)).toMatchObject({
      phase: 'failed',
      attempts: 1,
      lastErrors: errors,
      runners: [{ op: 'third' }],
    });
    expect(recordOf(...lines, failed, { ...failed, attempts: 40 }).attempts).toBe(40);
  });

  test('reads what there is of a record whose last line is cut off at any point', () => {
    const whole = textOf(ok(0), { event: 'done', op });
    const first = renderIntent(intent).length;
    for (let length = first; length < whole.length - 1; length++) {
      const record = parseRecord(whole.slice(0, length), FILE);
      expect(record.phase).toBe('adding');
    }
    const cut = parseRecord(whole.slice(0, first + 9), FILE);
    expect(cut).toMatchObject({ unreadable: 1, outcomes: [] });
    expect(parseRecord(`${whole.slice(0, first + 9)}\n${renderLine(ok(1))}`, FILE)).toMatchObject({
      unreadable: 1,
      outcomes: [{ index: 1 }],
    });
  });

  test.each([
    ['nothing', '', 'its first line is not a JSON object'],
    ['zeros', '\0\0\0\0', 'its first line is not a JSON object'],
    ['an array', '[]\n', 'its first line is not a JSON object'],
    [
      'another kind of file',
      '{"kind":"cniCacheV1"}\n',
      'expected layout 1 in "record" of its first line, found none',
    ],
    ['a later layout', '{"record":2}\n', 'expected layout 1 in "record" of its first line, found 2'],
    ['half an intent', renderIntent(intent).slice(0, 80), 'its first line is not a JSON object'],
    ['a number for a name', `{"record":1,"network":5}\n`, '"network" must be a non-empty string, found 5'],
  ])('refuses %s', (_, text, reason) => {
    expect(() => parseRecord(text, FILE)).toThrow(`Cannot read record "${FILE}": `);
    expect(() => parseRecord(text, FILE)).toThrow(reason);
  });

  test('throws nothing but a CniError, and keeps what it could read', () => {
    const hostile = fc.oneof(
      fc.string(),
      fc.jsonValue().map(value => JSON.stringify(value)),
      fc.constantFrom(...textOf(ok(0), { event: 'done', op }).trimEnd().split('\n')),
      fc.constantFrom(
        '{"event":"link","verb":"ADD","index":-1,"result":{}}',
        '{"__proto__":{"event":"done"}}',
      ),
    );
    fc.assert(
      fc.property(fc.array(hostile), fc.boolean(), (lines, headed) => {
        const text = [...(headed ? [renderIntent(intent).trimEnd()] : []), ...lines].join('\n');
        try {
          const record = parseRecord(text, FILE);
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

describe('lastBegun()', () => {
  test.each([
    ['nothing is known', [], 0],
    ['the first succeeded', [ok(0)], 1],
    ['the second failed', [ok(0), { event: 'link', verb: 'ADD', index: 1, error: { code: 1, msg: '' } }], 1],
    ['all succeeded', [ok(0), ok(1), ok(2)], 2],
    ['the ADD was done', [ok(0), { event: 'done', op }], 2],
    ['two were called together', [{ event: 'segment', verb: 'ADD', last: 1 }], 1],
    ['all were, and the first has answered', [{ event: 'segment', verb: 'ADD', last: 2 }, ok(0)], 2],
    ['more were than there are', [{ event: 'segment', verb: 'ADD', last: 7 }], 2],
  ] as [string, Line[], number][])('is found when %s', (_, lines, expected) => {
    expect(lastBegun(recordOf(...lines), 3)).toBe(expected);
  });

  test('is the last one when a line is missing', () => {
    expect(lastBegun(parseRecord(`${textOf(ok(0))}{"eve`, FILE), 3)).toBe(2);
  });
});
