// Does a request leave one line for itself and one for each plugin, with the fields that people search for?
import { describe, expect, test } from 'bun:test';
import { levelOf, linesOf, parseLogLevels } from '../../../src/observe/log-lines.ts';
import type { RequestRecord } from '../../../src/observe/record.ts';

const PLUGIN = {
  network: 'podnet',
  link: 'bridge',
  index: 0,
  executable: '/opt/cni/bin/bridge',
  verb: 'ADD',
  startMs: 0,
  durationMs: 2,
  code: 0,
};

const RECORD: RequestRecord = {
  id: 'mi7000000001',
  verb: 'ADD',
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/run/netns/a',
  podNamespace: 'shop',
  podName: 'web',
  startedAt: 0,
  durationMs: 5,
  code: 0,
  warm: true,
  links: [PLUGIN, { ...PLUGIN, link: 'tuning', index: 1, code: 7, message: 'no' }],
  result: { ips: [{ address: '10.1.0.2/24' }] },
};

const PLACE = {
  request: 'mi7000000001',
  command: 'ADD',
  network: 'podnet',
  container_id: 'c1',
  ifname: 'eth0',
  netns: '/run/netns/a',
  pod_namespace: 'shop',
  pod_name: 'web',
};

describe('linesOf()', () => {
  test('returns a line for each plugin and one for the request', () => {
    expect(linesOf(RECORD, parseLogLevels('info'))).toMatchObject([
      {
        level: 'info',
        message: 'plugin finished',
        fields: { ...PLACE, link: 'bridge', link_index: 0, duration_ms: 2, code: 0 },
      },
      {
        level: 'error',
        message: 'plugin failed',
        fields: { ...PLACE, link: 'tuning', code: 7, error: 'no' },
      },
      {
        level: 'info',
        message: 'request finished',
        fields: { ...PLACE, duration_ms: 5, code: 0, warm: true, addresses: ['10.1.0.2/24'] },
      },
    ]);
  });

  test('honours the log level of each plugin', () => {
    const shown = (levels: string) =>
      linesOf(RECORD, parseLogLevels(levels)).map(({ fields }) => fields.link ?? 'request');
    expect(shown('error')).toEqual(['tuning']);
    expect(shown('error,bridge=info')).toEqual(['bridge', 'tuning']);
    expect(shown('info,bridge=warn')).toEqual(['tuning', 'request']);
  });

  test('passes on standard error: that of our plugins at its level, that of others as warnings', () => {
    const own = '{"level":"debug","message":"sent","timestamp":"t","count":3,"network":"not-this"}';
    const record = { ...RECORD, links: [{ ...PLUGIN, stderr: `${own}\nsome words\n{"half":\n` }] };
    const lines = linesOf(record, parseLogLevels('debug'));
    expect(lines.slice(0, 3)).toMatchObject([
      {
        level: 'debug',
        message: 'sent',
        fields: { count: 3, said_at: 't', network: 'podnet', link: 'bridge' },
      },
      { level: 'warn', message: 'some words', fields: { link: 'bridge' } },
      { level: 'warn', message: '{"half":' },
    ]);
    expect(linesOf(record, parseLogLevels('info')).map(({ message }) => message)).not.toContain('sent');
  });
});

describe('parseLogLevels()', () => {
  test('reads one level for all and one by plugin', () => {
    const levels = parseLogLevels('warn, portmap=debug');
    expect([levelOf(levels), levelOf(levels, 'portmap'), levelOf(levels, 'bridge')]).toEqual([
      'warn',
      'debug',
      'warn',
    ]);
    expect(levelOf(parseLogLevels(''))).toBe('info');
  });

  test.each(['loud', 'bridge=loud', '=x'])('refuses %s', text => {
    expect(() => parseLogLevels(text)).toThrow('Cannot use log level');
  });
});
