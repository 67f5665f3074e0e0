import { describe, expect, test } from 'bun:test';
import { NetworkNotFound } from '../../../src/chain/config/load.ts';
import { joinErrors, withDetails } from '../../../src/chain/run/plugin-outcome.ts';
import { renderFailure, toFailureJson } from '../../../src/cli/failure.ts';
import { CniError } from '../../../src/cni/errors.ts';

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
    [999, 'Cannot add link: EPERM', 'run as root'],
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
  const shown = { link: type, ...rest };

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
    expect(reply).toMatchObject({ code: 7, msg: 'Cannot collect: 2 steps failed' });
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
