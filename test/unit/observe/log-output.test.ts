// Do lines of a long-lived process arrive in each output, and is a failing output harmless?
import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { openLogOutput, parseLogDestination } from '../../../src/observe/log-output.ts';
import { runOk } from '../../helpers/command.ts';

const LINE = { level: 'info', message: 'request finished', fields: { network: 'podnet', code: 0 } } as const;

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
      const late = setTimeout(() => child.kill('SIGKILL'), 20_000);
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
      expect(JSON.parse(fs.readFileSync(file, 'utf8'))).toMatchObject({ message: 'request finished', i: 19 });
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
