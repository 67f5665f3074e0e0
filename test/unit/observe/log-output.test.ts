// Does a file of lines stay bounded, and does it come back after a failure?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  levelOf,
  linesOf,
  openLogOutput,
  parseLogDestination,
  parseLogLevels,
  renderJournal,
  renderSyslog,
} from '../../../src/observe/log-output.ts';
import type { RequestRecord } from '../../../src/observe/record.ts';
import { runOk } from '../../helpers/command.ts';
import { deadline } from '../../helpers/deadline.ts';
import { receiveDatagrams } from '../../helpers/unix-receiver.ts';

const PLUGIN = {
  network: 'podnet',
  type: 'bridge',
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
  plugins: [PLUGIN, { ...PLUGIN, type: 'tuning', index: 1, code: 7, message: 'no' }],
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
        fields: { ...PLACE, plugin: 'bridge', plugin_index: 0, duration_ms: 2, code: 0 },
      },
      {
        level: 'error',
        message: 'plugin failed',
        fields: { ...PLACE, plugin: 'tuning', code: 7, error: 'no' },
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
      linesOf(RECORD, parseLogLevels(levels)).map(({ fields }) => fields.plugin ?? 'request');
    expect(shown('error')).toEqual(['tuning']);
    expect(shown('error,bridge=info')).toEqual(['bridge', 'tuning']);
    expect(shown('info,bridge=warn')).toEqual(['tuning', 'request']);
  });

  test('passes on standard error: that of our plugins at its level, that of others as warnings', () => {
    const own = '{"level":"debug","message":"sent","timestamp":"t","count":3,"network":"not-this"}';
    const record = { ...RECORD, plugins: [{ ...PLUGIN, stderr: `${own}\nsome words\n{"half":\n` }] };
    const lines = linesOf(record, parseLogLevels('debug'));
    expect(lines.slice(0, 3)).toMatchObject([
      {
        level: 'debug',
        message: 'sent',
        fields: { count: 3, said_at: 't', network: 'podnet', plugin: 'bridge' },
      },
      { level: 'warn', message: 'some words', fields: { plugin: 'bridge' } },
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

const LINE = { level: 'error', message: 'plugin failed', fields: { container_id: 'c1', code: 11 } } as const;
const at = new Date(2026, 10, 1, 9, 5, 7);
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

describe('renderSyslog()', () => {
  test('returns priority, time, name and one line of JSON', () => {
    const json = '{"level":"error","message":"plugin failed","container_id":"c1","code":11}';
    expect(text(renderSyslog(LINE, at, 7))).toBe(`<27>Nov  1 09:05:07 catena[7]: ${json}`);
  });

  test('keeps to the limits of syslog daemons', () => {
    const long = { ...LINE, fields: { filler: 'x'.repeat(100_000) } };
    expect(renderSyslog(long, at, 7).length).toBe(8_000);
  });
});

describe('renderJournal()', () => {
  test('gives every field a name of its own', () => {
    const lines = 'MESSAGE=plugin failed\nPRIORITY=3\nSYSLOG_IDENTIFIER=catena\n';
    expect(text(renderJournal(LINE))).toBe(`${lines}CATENA_CONTAINER_ID=c1\nCATENA_CODE=11\n`);
  });

  test('writes the length of a value with line breaks', () => {
    const bytes = renderJournal({ level: 'info', message: 'a\nb', fields: {} });
    expect(text(bytes)).toBe('MESSAGE\n\u0003\0\0\0\0\0\0\0a\nb\nPRIORITY=6\nSYSLOG_IDENTIFIER=catena\n');
  });
});

describe('openLogOutput()', () => {
  test('sends each line to syslog and to the journal', async () => {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-syslog-'));
    const [syslog, journal] = ['syslog', 'journal'].map(name => path.join(dir, name));
    const receivers = [syslog ?? '', journal ?? ''].map(receiveDatagrams);
    const output = await openLogOutput([
      { kind: 'syslog', path: syslog ?? '' },
      { kind: 'journal', path: journal ?? '' },
    ]);
    output.write(LINE);
    await output.close();
    const [lines, entries] = receivers.map(receiver => receiver.take());
    for (const receiver of receivers) receiver.close();
    fs.rmSync(dir, { recursive: true, force: true });
    expect(output.dropped).toBe(0);
    expect(lines).toEqual([
      expect.stringMatching(/^<27>... .\d \d\d:\d\d:\d\d catena\[\d+\]: \{"level":"error"/),
    ]);
    expect(entries).toEqual([text(renderJournal(LINE))]);
  });
});

describe('log-output', () => {
  const LINE = {
    level: 'info',
    message: 'request finished',
    fields: { network: 'podnet', code: 0 },
  } as const;

  async function withDir<T>(work: (dir: string) => Promise<T>): Promise<T> {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-log-'));
    try {
      return await work(dir);
    } finally {
      fs.rmSync(dir, { recursive: true, force: true });
    }
  }

  /** The same log in a process of its own, whose standard error can be read. */
  async function logToConsole(): Promise<string> {
    const script = `
    import { openLogOutput } from '${path.resolve(import.meta.dir, '../../../src/observe/log-output.ts')}';
    const output = await openLogOutput([{ kind: 'console' }]);
    output.write(${JSON.stringify(LINE)});
    await output.close();
  `;
    return (await runOk([process.execPath, '-e', script])).stderr;
  }

  describe('openLogOutput()', () => {
    test('writes JSON lines to standard error', async () => {
      expect(JSON.parse(await logToConsole())).toMatchObject({
        level: 'info',
        message: 'request finished',
        network: 'podnet',
        code: 0,
        timestamp: expect.any(String),
      });
    });

    test('does not wait when standard error has a stalled reader', async () => {
      await withDir(async dir => {
        const fifo = path.join(dir, 'fifo');
        await runOk(['mkfifo', fifo]);
        // Open for reading as well: no process reads, and no writer gets an error.
        const unread = fs.openSync(fifo, fs.constants.O_RDWR);
        const script = `
        import { openLogOutput } from '${path.resolve(import.meta.dir, '../../../src/observe/log-output.ts')}';
        const output = await openLogOutput([{ kind: 'console' }]);
        for (let i = 0; i < 5_000; i += 1) output.write(${JSON.stringify(LINE)});
        await output.close();
        console.log(output.dropped);
      `;
        const child = Bun.spawn([process.execPath, '-e', script], { stdout: 'pipe', stderr: unread });
        const late = setTimeout(() => child.kill('SIGKILL'), deadline(20_000));
        const dropped = Number(await child.stdout.text());
        clearTimeout(late);
        fs.closeSync(unread);
        expect(dropped).toBeGreaterThan(0);
      });
    });

    test('writes a file that is rotated', async () => {
      await withDir(async dir => {
        const file = path.join(dir, 'logs', 'catena.log');
        const output = await openLogOutput([{ kind: 'file', path: file, maxBytes: 300, maxFiles: 3 }]);
        for (let i = 0; i < 20; i += 1) output.write({ ...LINE, fields: { i, filler: 'x'.repeat(100) } });
        await output.close();
        expect(fs.readdirSync(path.dirname(file)).sort()).toEqual([
          'catena.log',
          'catena.log.1',
          'catena.log.2',
        ]);
        expect(JSON.parse(fs.readFileSync(file, 'utf8'))).toMatchObject({
          message: 'request finished',
          i: 19,
        });
        expect(output.dropped).toBe(0);
      });
    });

    test('continues, and counts, when the disk is full', async () => {
      await withDir(async dir => {
        const good = path.join(dir, 'good.log');
        const full = path.join(dir, 'full.log');
        fs.symlinkSync('/dev/full', full);
        const limits = { maxBytes: 100_000_000, maxFiles: 2 };
        const output = await openLogOutput([
          { kind: 'file', path: full, ...limits },
          { kind: 'file', path: good, ...limits },
        ]);
        const filler = 'x'.repeat(10_000);
        for (let i = 0; i < 200; i += 1) {
          output.write({ ...LINE, fields: { i, filler } });
        }
        await output.close();
        const lines = fs.readFileSync(good, 'utf8').split('\n').filter(Boolean);
        expect(lines.map(line => JSON.parse(line).i)).toEqual(Array.from({ length: 200 }, (_, i) => i));
        expect(output.dropped).toBe(200);
      });
    });

    test('loses only lines when no syslog daemon listens', async () => {
      await withDir(async dir => {
        const output = await openLogOutput([
          parseLogDestination(`syslog:${dir}/none`),
          parseLogDestination(`journal:${dir}/none`),
        ]);
        output.write(LINE);
        await output.close();
        expect(output.dropped).toBe(2);
      });
    });
  });

  describe('parseLogDestination()', () => {
    test('accepts the four kinds', () => {
      expect(
        ['console', 'syslog', 'journal', 'syslog:/tmp/log'].map(text => parseLogDestination(text)),
      ).toEqual([
        { kind: 'console' },
        { kind: 'syslog', path: '/dev/log' },
        { kind: 'journal', path: '/run/systemd/journal/socket' },
        { kind: 'syslog', path: '/tmp/log' },
      ]);
      expect(parseLogDestination('file:/var/log/catena.log')).toMatchObject({ path: '/var/log/catena.log' });
      for (const wrong of ['', 'file', 'file:', 'console:x', 'printer'])
        expect(() => parseLogDestination(wrong)).toThrow('Cannot log to');
    });
  });
});
