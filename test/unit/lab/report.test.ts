import { describe, expect, test } from 'bun:test';
import { isProblem, type Section, toJson } from '../../../src/lab/report.ts';

const probe = (outcome: 'ok' | 'failed' | 'skipped'): Section => ({
  kind: 'probe',
  what: 'w',
  outcome,
  seen: 's',
});

describe('isProblem()', () => {
  test('is true for failures and for garbage', () => {
    const verb = { kind: 'verb', verb: 'ADD', durationMs: 1, links: [] } as const;
    expect(isProblem({ ...verb, failure: { message: 'm' } })).toBe(true);
    expect(isProblem(probe('failed'))).toBe(true);
    expect(isProblem({ kind: 'left', left: ['veth v'], kept: [] })).toBe(true);
    expect([verb, probe('ok'), probe('skipped')].map(isProblem)).toEqual([false, false, false]);
    expect(isProblem({ kind: 'left', left: [], kept: ['bridge b'] })).toBe(false);
  });
});

describe('toJson()', () => {
  test('is one object for the whole report', () => {
    const sections: Section[] = [
      { kind: 'lab', network: 'n', version: '1.0.0', links: 1, rootless: true, durationMs: 3 },
      { kind: 'verb', verb: 'ADD', durationMs: 1, links: [] },
      probe('ok'),
      { kind: 'left', left: [], kept: ['bridge b'] },
      { kind: 'verdict', ok: true, failures: 0, durationMs: 9 },
    ];
    expect(toJson(sections)).toEqual({
      ok: true,
      network: 'n',
      version: '1.0.0',
      links: 1,
      rootless: true,
      durationMs: 9,
      verbs: [{ verb: 'ADD', durationMs: 1, links: [] }],
      probes: [{ what: 'w', outcome: 'ok', seen: 's' }],
      left: [],
      kept: ['bridge b'],
    });
  });
});
