import { describe, expect, test } from 'bun:test';
import { NetworkNotFound } from '../../../src/chain/config/load.ts';
import { joinErrors, withDetails } from '../../../src/chain/run/call-plugins.ts';
import { renderDiagnosis } from '../../../src/cli/commands/doctor.ts';
import { renderLog } from '../../../src/cli/commands/log.ts';
import { renderFailure, showable, toFailureJson } from '../../../src/cli/failure.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { painter } from '../../../src/lab/words.ts';

const plugin = {
  network: 'podnet',
  type: 'bridge',
  index: 1,
  verb: 'ADD',
  executable: '/opt/cni/bin/bridge',
  exitCode: 1,
  durationMs: 12.6,
  stderr: 'one\ntwo\n',
};

describe('renderFailure()', () => {
  test('shows what failed, where, how it ended, and its output', () => {
    expect(renderFailure(new CniError(100, 'no route', { details: 'to host', plugin }))).toBe(
      [
        'catena: no route',
        '  details: to host',
        '  code: 100',
        '  plugin: bridge, number 2 of network "podnet", ADD, exit status 1 after 13 ms',
        '  executable: /opt/cni/bin/bridge',
        '  its standard error:',
        '    one',
        '    two',
        '',
      ].join('\n'),
    );
  });

  test('shortens the ids of containers, not what can be typed', () => {
    const id = '4f1c0a9be2d3'.padEnd(64, '0');
    const failure = new CniError(11, `container "${id}" has it: rm /run/${id}`);
    expect(renderFailure(failure)).toStartWith(`catena: container "4f1c0a9be2d3" has it: rm /run/${id}\n`);
  });

  test('names the signal, and only the last lines of a long standard error', () => {
    const { exitCode: _, ...killed } = plugin;
    const stderr = Array.from({ length: 40 }, (_, i) => `line ${i}`).join('\n');
    const text = renderFailure(new CniError(0, 'gone', { plugin: { ...killed, signal: 'SIGKILL', stderr } }));
    expect(text).toContain('ADD, ended by SIGKILL after 13 ms');
    expect(text).not.toContain('line 27\n');
    expect(text).toContain('line 28\n');
  });

  test.each([
    [1, 'incompatible CNI versions', 'catena networks --versions <network>'],
    [11, 'busy', 'try again later'],
    [0, 'Cannot find plugin "x": no such file in "/y"', 'CNI_PATH or --bin-dir'],
    [999, 'Cannot add type: EPERM', 'run as root'],
  ])('gives advice for code %d, %s', (code, message, hint) => {
    expect(renderFailure(new CniError(code, message))).toMatch(new RegExp(`\\n  hint: .*${hint}`));
  });

  test('says where to name directories only where a network is missing', () => {
    expect(renderFailure(new NetworkNotFound('x', ' in "/y"'))).toMatch(/\n {2}hint: .*--conf-dir/);
    expect(renderFailure(new CniError(4, 'Cannot find network namespace "x"'))).not.toContain('hint');
  });

  test('accepts any thrown value', () => {
    expect(renderFailure(new Error('boom', { cause: new Error('why') }))).toBe(
      'catena: boom: why\n  code: 999\n',
    );
    expect(renderFailure('text')).toStartWith('catena: text\n');
  });
});

describe('toFailureJson()', () => {
  const { type, ...rest } = plugin;
  const shown = { type: type, ...rest };

  test('is the error object of the specification, with the failed plugin under an extra key', () => {
    expect(toFailureJson(new CniError(100, 'no route', { details: 'to host', plugin }))).toEqual({
      cniVersion: '1.1.0',
      code: 100,
      msg: 'no route',
      details: 'to host',
      catena: { failures: [{ ...shown, code: 100, msg: 'no route' }] },
    });
  });

  test('names every failed plugin of a joined error once', () => {
    const one = new CniError(7, 'first', { plugin });
    const other = new CniError(8, 'second', { plugin: { ...plugin, index: 0 } });
    const wrapped = new Error('Cannot delete stale attachment', { cause: withDetails(one, 'more', [other]) });
    const { catena, ...reply } = toFailureJson(joinErrors('Cannot collect', [wrapped, other]));
    expect(reply).toMatchObject({ code: 7, msg: expect.stringMatching(/^Cannot collect: .*first.*second/) });
    expect(catena?.failures.map(({ index, code }) => [index, code])).toEqual([
      [1, 7],
      [0, 8],
    ]);
  });

  test('has no extra key without a plugin', () => {
    expect(toFailureJson(new CniError(7, 'x'))).toEqual({ cniVersion: '1.1.0', code: 7, msg: 'x' });
    expect(toFailureJson('text')).toEqual({ cniVersion: '1.1.0', code: 999, msg: 'text' });
  });
});

test.each([
  ['what moves a cursor', 'a\u001b[2Jb\u001b]0;title\u0007', 'a\\u001b[2Jb\\u001b]0;title\\u0007'],
  ['a line that is written over', 'failed\rdone', 'failed\\u000ddone'],
  ['the same with eight bits', '\u009b2J\u007f', '\\u009b2J\\u007f'],
  ['what turns the direction of writing', 'a\u202eb', 'a\\u202eb'],
])('showable() escapes %s', (_, text, shown) => {
  expect(showable(text)).toBe(shown);
});

test('showable() keeps lines, tabs and letters of any language', () => {
  const text = 'a\tb\né 漢 \n';
  expect(showable(text)).toBe(text);
});

test('showable() has our colours, and none that a text of someone else brings', () => {
  const foreign = 'sound\u001b[8m hidden\u001b[32m';
  expect(showable(painter({ colour: true })('red', foreign))).toBe(
    '\u001b[31msound\\u001b[8m hidden\\u001b[32m\u001b[39m',
  );
  expect(showable(painter({ colour: false })('red', 'a'))).toBe('a');
});

test('reports show a message of several lines as one, which cannot be taken for more of the report', () => {
  const forged = 'no\n2026-01-31 08:00:00  ADD  web: all is well\r\u001b[8m';
  const lines = (text: string) => showable(text).trimEnd().split('\n');
  const style = { colour: false };
  const entry = {
    time: '2026-01-31T08:00:00Z',
    what: 'ADD',
    by: 'daemon',
    code: 7,
    message: forged,
    source: 'trace',
  };
  expect(lines(renderLog([entry], style))).toEqual([expect.stringContaining('no\\n2026-01-31 08:00:00')]);
  expect(lines(renderFailure(new CniError(7, forged, { details: forged })))).toHaveLength(3);
  const finding = { id: 'x', severity: 'error', found: forged, mend: forged } as const;
  const verdict = { state: 'broken', summary: '1 thing to do' } as never;
  expect(lines(renderDiagnosis([finding], verdict, { colour: false, all: true }))).toHaveLength(3);
});

test('showable() keeps the meaning of JSON', () => {
  const value = { msg: '\u001b[2J \u009b \u202e' };
  expect(JSON.parse(showable(JSON.stringify(value)))).toEqual(value);
});
