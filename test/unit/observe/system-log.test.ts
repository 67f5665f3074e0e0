// Do syslog daemons and the journal get lines that they can read?
import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { openLogOutput } from '../../../src/observe/log-output.ts';
import { renderJournal, renderSyslog } from '../../../src/observe/system-log.ts';
import { receiveDatagrams } from '../../helpers/unix-receiver.ts';

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
