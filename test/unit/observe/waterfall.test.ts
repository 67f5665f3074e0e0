// Can a person see from a drawing when each plugin ran, what it added and what failed?
import { describe, expect, test } from 'bun:test';
import { localTime } from '../../../src/lab/words.ts';
import type { PluginRecord, RequestRecord } from '../../../src/observe/record.ts';
import { renderList, renderWaterfall } from '../../../src/observe/waterfall.ts';

const IPS = [{ address: '10.88.0.2/24', gateway: '10.88.0.1' }];
const BRIDGE_RESULT = {
  cniVersion: '1.0.0',
  interfaces: [{ name: 'cni0' }, { name: 'eth0', sandbox: '/run/netns/web' }],
  ips: IPS,
};

function link(name: string, index: number, startMs: number, durationMs: number, more = {}): PluginRecord {
  const call = { network: 'podnet', type: name, index, executable: `/opt/cni/bin/${name}`, verb: 'ADD' };
  return { ...call, startMs, durationMs, code: 0, ...more };
}

const RECORD: RequestRecord = {
  id: 'mi7c0a1b2c3d',
  verb: 'ADD',
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/run/netns/web',
  podNamespace: 'shop',
  podName: 'web',
  startedAt: Date.UTC(2026, 0, 2, 3, 4, 5, 6),
  durationMs: 20,
  code: 0,
  warm: true,
  queueMs: 3,
  lockMs: 0,
  plugins: [
    link('bridge', 0, 0, 10, { result: BRIDGE_RESULT }),
    link('bandwidth', 1, 10, 5, {
      result: { ...BRIDGE_RESULT, interfaces: [...BRIDGE_RESULT.interfaces, { name: 'ifb0' }] },
    }),
    link('tuning', 2, 15, 5, { stderr: 'a word\n' }),
  ],
};

describe('renderWaterfall()', () => {
  test('draws a bar for each plugin, and shows what each added', () => {
    expect(renderWaterfall(RECORD)).toBe(`mi7c0a1b2c3d  ADD podnet  container c1, eth0
  2026-01-02T03:04:05.006Z, 20.0 ms, by the daemon
  pod shop/web
  namespace /run/netns/web
  waited 3.0 ms in the queue

  plugin     0                                20.0 ms     time  result
  bridge     ████████████████████                      10.0 ms  + cni0
                                                                + eth0 (container)
                                                                + 10.88.0.2/24 gateway 10.88.0.1
  bandwidth                      ██████████             5.0 ms  + ifb0
  tuning                                   ██████████   5.0 ms  stderr: a word
`);
  });

  test('has shorter bars on a narrow terminal', () => {
    const lines = renderWaterfall(RECORD, false, 80).split('\n');
    expect(lines.slice(7, 9)).toEqual([
      `  bridge     ${'█'.repeat(11)}${' '.repeat(11)}  10.0 ms  + cni0`,
      `${' '.repeat(46)}+ eth0 (container)`,
    ]);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
  });

  test('folds kernel transactions, and draws them on request', () => {
    const transactions = [
      { family: 'rtnetlink', what: 'find link "br0"', startMs: 1, durationMs: 1, error: 'ENODEV' },
      { family: 'netfilter', what: 'list tables', startMs: 5, durationMs: 0.25 },
    ];
    const plugins = [link('tuning', 0, 0, 2), link('bridge', 1, 2, 8, { transactions })];
    const finishes = [{ network: 'podnet', verb: 'ADD', startMs: 10, durationMs: 10, transactions: [] }];
    const record = { ...RECORD, plugins: plugins, finishes };
    const rows = (kernel: boolean) => renderWaterfall(record, kernel).split('\n').slice(7, -1);
    expect(rows(false)).toEqual([
      '  tuning    ████                                       2.0 ms',
      '  bridge        ████████████████                       8.0 ms  kernel: 2 transactions, 1.3 ms',
      '  removals                      ████████████████████  10.0 ms  deferred removals, done together',
    ]);
    expect(rows(true)).toEqual([
      '  tuning       ████                                       2.0 ms',
      '  bridge           ████████████████                       8.0 ms',
      '    rtnetlink        ▒▒                                  1.00 ms  find link "br0": ENODEV',
      '    netfilter                ▒                           0.25 ms  list tables',
      '  removals                         ████████████████████  10.0 ms  deferred removals, done together',
    ]);
  });

  test('shows what failed, and what was undone afterwards', () => {
    const plugins = [
      link('bridge', 0, 0, 10),
      link('tuning', 1, 10, 2, { code: 7, message: 'Cannot set x' }),
      link('bridge', 0, 12, 8, { verb: 'DEL' }),
    ];
    const drawn = renderWaterfall({
      ...RECORD,
      code: 7,
      message: 'Cannot set x',
      details: 'because',
      plugins: plugins,
    });
    expect(drawn).toContain('FAILED with code 7: Cannot set x\n');
    expect(drawn).toMatch(/^ {2}DEL bridge {2}/m);
    expect(drawn).toEndWith('\n\n  FAILED with code 7: Cannot set x\n  because\n');
  });

  test('draws records without plugins, or with an invalid result', () => {
    expect(renderWaterfall({ ...RECORD, plugins: [] })).toContain('no plugin was called');
    const odd = renderWaterfall({ ...RECORD, plugins: [link('odd', 0, 0, 1, { result: { ips: 'none' } })] });
    expect(odd).toMatch(/^ {2}odd /m);
  });
});

const TIME = localTime('2026-01-02T03:04:05Z');
const { podName: _, podNamespace: __, ...BARE } = RECORD;

describe('renderList()', () => {
  test('says which plugin a runtime called, or how many a command, and leaves columns out on a narrow terminal', () => {
    const calls = [BARE, { ...BARE, plugins: BARE.plugins.slice(0, 1) }];
    expect(renderList(calls, 80)).toBe(
      'ID            TIME                 VERB  PLUGINS    CONTAINER  DURATION  CODE\n' +
        `mi7c0a1b2c3d  ${TIME}  ADD   3 plugins  c1         20.0 ms   0\n` +
        `mi7c0a1b2c3d  ${TIME}  ADD   bridge     c1         20.0 ms   0\n`,
    );
    expect(renderList(calls, 90)).toContain('podnet   c1');
  });

  test('calls a container what ls calls it', () => {
    const containerId = `cnitool-${'f'.repeat(20)}`;
    const names = [
      { containerId, netns: '/run/netns/web' },
      { podName: 'two', containerId: 'f'.repeat(64) },
      { podNamespace: 'shop', podName: 'db' },
    ];
    const rows = renderList(names.map(one => ({ ...BARE, ...one }))).split('\n');
    expect(rows.slice(1, 4).map(row => row.split(/ {2,}/)[5])).toEqual(['web', 'two', 'shop/db']);
  });

  test('prints a line per request', () => {
    const failed = { ...BARE, id: 'mi7c0a1b2c3e', verb: 'GC', containerId: '', ifname: '', code: 11 };
    const long = { ...BARE, containerId: 'f'.repeat(64) };
    expect(renderList([failed, long])).toBe(
      [
        'ID            TIME                 VERB  PLUGINS    NETWORK  CONTAINER     IFNAME  DURATION  CODE',
        `mi7c0a1b2c3e  ${TIME}  GC    3 plugins  podnet   -             -       20.0 ms   11`,
        `mi7c0a1b2c3d  ${TIME}  ADD   3 plugins  podnet   ffffffffffff  eth0    20.0 ms   0`,
        '',
      ].join('\n'),
    );
  });
});
