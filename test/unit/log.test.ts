// Do log lines carry their fields, and does silence stay silent?
import { describe, expect, test } from 'bun:test';
import { createLog } from '../../src/log.ts';

function recorded(level?: 'error' | 'warn' | 'info' | 'debug') {
  const written: string[] = [];
  const log = createLog(level, { plugin: 'bridge' }, text => written.push(text));
  return { log, lines: () => written.map(line => JSON.parse(line)) };
}

describe('createLog()', () => {
  test('writes JSON lines with the fields of the log and of the line', async () => {
    const { log, lines } = recorded('info');
    log.info('removed', { ifname: 'eth0' });
    await log.flush();
    expect(lines()).toMatchObject([{ level: 'info', message: 'removed', plugin: 'bridge', ifname: 'eth0' }]);
  });

  test('leaves out lines below its level', async () => {
    const { log, lines } = recorded('warn');
    log.info('not this');
    log.error('this');
    await log.flush();
    expect(lines().map(line => line.message)).toEqual(['this']);
  });

  test('writes every line once', async () => {
    const { log, lines } = recorded('warn');
    log.warn('once');
    await log.flush();
    await log.flush();
    expect(lines()).toHaveLength(1);
  });
});
