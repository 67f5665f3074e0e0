import { describe, expect, test } from 'bun:test';
import { parseNetwork } from '../../../src/chain/config/conflist.ts';
import type { SceneRecord } from '../../../src/compare/record.ts';
import { renderReport } from '../../../src/compare/render.ts';
import { reportOn } from '../../../src/compare/report.ts';

const LIST = parseNetwork(
  JSON.stringify({ cniVersion: '1.0.0', name: 'net', plugins: [{ type: 'bridge' }, { type: 'tuning' }] }),
);

function record(mtu: string, durationMs: number, message?: string): SceneRecord {
  const [places, files] = [{ host: { link: { br0: { mtu } } } }, {}];
  const answer = message === undefined ? { failed: false } : { failed: true, message };
  const moment = { step: 'ADD', verb: 'ADD', index: 0, answer, durationMs, sight: { places, files } };
  const before = { places: { host: { link: { br0: { mtu: '0' } } } }, files };
  return { namespaces: {}, began: 0, ended: 1, before, moments: [moment] };
}

const played = (second: string) =>
  ['life', 'twice'].map(name => ({ name, first: record('1500', 4), second: record(second, 8) }));

describe('reportOn()', () => {
  test('reports a difference once, with the scenes in which it occurred, and the times', () => {
    const { same, links: plugins } = reportOn(LIST, played('1400'), []);
    expect(same).toBe(false);
    expect(plugins.map(({ link, differences }) => [link, differences.length])).toEqual([
      ['bridge', 1],
      ['tuning', 0],
      ['the chain as a whole', 0],
    ]);
    expect(plugins[0]?.differences[0]).toMatchObject({
      what: 'link br0, mtu',
      scene: 'life',
      alsoIn: ['twice'],
    });
    expect(plugins[0]?.times).toEqual({ ADD: { first: 4, second: 8 } });
  });

  test('leaves out intended differences', () => {
    expect(reportOn(LIST, played('1400'), [/^ADD: host: link br0, mtu: 1500 \| 1400$/]).same).toBe(true);
    expect(reportOn(LIST, played('1400'), [/txqlen/]).same).toBe(false);
  });
});

test('does not count a failure of both sides as equal', () => {
  const both = { first: record('1500', 4, 'no such device'), second: record('1500', 8, 'no such device') };
  const report = reportOn(LIST, [{ name: 'life', ...both }], []);
  expect(report).toMatchObject({
    same: false,
    failing: [{ index: 0, link: 'bridge', message: 'no such device' }],
  });
  const text = renderReport(report, '/a', '/b');
  expect(text).toContain('\nNOT COMPARED: ADD of 0 bridge fails with both sets: no such device\n');
  expect(text).toEndWith('\nMAY B REPLACE A? unknown: ADD of bridge fails with both sets\n');
  expect(reportOn(LIST, [{ name: 'life', ...both, second: record('1500', 8) }], []).failing).toEqual([]);
});

describe('renderReport()', () => {
  test('shows both values below each other, and the verdict last', () => {
    const text = renderReport(reportOn(LIST, played('1400'), []), '/a', '/b');
    expect(text).toContain('0 bridge: 1 difference; ADD 4.0 ms / 8.0 ms\n');
    expect(text).toContain('  ADD: host: link br0, mtu (life and 1 more scene)\n    A  1500\n    B  1400\n');
    expect(text).toContain('\n1 tuning: the same\n');
    expect(text).toEndWith('\nMAY B REPLACE A? not as it is: 1 difference must be intended\n');
  });
});
