import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { lastBegun, parseNote, renderIntent, renderLine } from '../../../src/attachments/lines.ts';
import type { Line } from '../../../src/attachments/record.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { intentOf } from '../../helpers/journal.ts';

const intent = intentOf();
const FILE = '/state/unsettled/testnet/c1:eth0';
const result = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };
const ok = (last: number): Line => ({ event: 'segment', last, result });
const settled = { ...intent, added: true, result } as const;
const textOf = (...lines: Line[]) => [renderIntent(intent), ...lines.map(renderLine)].join('');
const recordOf = (...lines: Line[]) => parseNote(textOf(...lines), FILE);

describe('parseNote()', () => {
  test('returns what renderIntent() wrote', () => {
    const { file, phase, ...rest } = recordOf();
    expect({ file, phase }).toEqual({ file: FILE, phase: 'adding' });
    expect(rest).toMatchObject({ ...intent, segment: -1, runners: [intent.runner], unreadable: 0 });
  });

  test('reads a single line of text whatever the configuration contains', () => {
    const source = '{\n  "name": "testnet"\u2028\n}\n';
    expect(parseNote(renderIntent({ ...intent, source }), FILE).source).toBe(source);
  });

  test('returns phase, how far it came, and result', () => {
    expect(recordOf(ok(0), { event: 'segment', last: 2 })).toMatchObject({
      ...{ phase: 'adding', added: false, segment: 2, result },
    });
    expect(parseNote(renderIntent(settled), FILE)).toMatchObject({ phase: 'attached', runners: [], result });
  });

  test('returns how often a DEL has failed, and that another one has begun', () => {
    const runner = { ...intent.runner, op: 'other' };
    const errors = [{ code: 999, msg: 'busy' }];
    const failed: Line = {
      event: 'failed',
      op: 'other',
      time: '2030-01-01',
      attempts: 1,
      errors,
    };
    const lines: Line[] = [{ event: 'begin', runner }];
    const recordOf = (...more: Line[]) =>
      parseNote([renderIntent(settled), ...more.map(renderLine)].join(''), FILE);
    expect(recordOf(...lines)).toMatchObject({ phase: 'deleting', added: true, runners: [runner] });
    const again = { event: 'begin', runner: { ...runner, op: 'third' } } as const;
    expect(recordOf(...lines, failed, again)).toMatchObject({
      phase: 'failed',
      attempts: 1,
      lastErrors: errors,
      runners: [{ op: 'third' }],
    });
    expect(recordOf(...lines, failed, { ...failed, attempts: 40 }).attempts).toBe(40);
  });

  test('reads what there is of a record whose last line is cut off at any point', () => {
    const whole = textOf(ok(0), ok(1));
    const first = renderIntent(intent).length;
    for (let length = first; length < whole.length - 1; length++) {
      const record = parseNote(whole.slice(0, length), FILE);
      expect(record.phase).toBe('adding');
    }
    const cut = parseNote(whole.slice(0, first + 9), FILE);
    expect(cut).toMatchObject({ unreadable: 1, segment: -1 });
    expect(parseNote(`${whole.slice(0, first + 9)}\n${renderLine(ok(1))}`, FILE)).toMatchObject({
      ...{ unreadable: 1, segment: 1 },
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
    expect(() => parseNote(text, FILE)).toThrow(`Cannot read note "${FILE}": `);
    expect(() => parseNote(text, FILE)).toThrow(reason);
  });

  test('throws nothing but a CniError, and keeps what it could read', () => {
    const hostile = fc.oneof(
      fc.string(),
      fc.jsonValue().map(value => JSON.stringify(value)),
      fc.constantFrom(...textOf(ok(0), ok(1)).trimEnd().split('\n')),
      fc.constantFrom('{"event":"segment","last":-1,"result":{}}', '{"__proto__":{"event":"segment"}}'),
    );
    fc.assert(
      fc.property(fc.array(hostile), fc.boolean(), (lines, headed) => {
        const text = [...(headed ? [renderIntent(intent).trimEnd()] : []), ...lines].join('\n');
        try {
          const record = parseNote(text, FILE);
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
    ['nothing has begun', [], -1],
    ['the first has begun', [ok(0)], 0],
    ['two were called together', [{ event: 'segment', last: 1 }], 1],
    ['more were than there are', [{ event: 'segment', last: 7 }], 2],
  ] as [string, Line[], number][])('is found when %s', (_, lines, expected) => {
    expect(lastBegun(recordOf(...lines), 3)).toBe(expected);
  });

  test('is the last one of what had succeeded, and when a line is missing', () => {
    expect(lastBegun(parseNote(renderIntent(settled), FILE), 3)).toBe(2);
    expect(lastBegun(parseNote(`${textOf(ok(0))}{"eve`, FILE), 3)).toBe(2);
  });
});
