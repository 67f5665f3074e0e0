// Does a file of settings change what it names and nothing else, and is an invalid one refused whole?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { BETWEEN_SETTINGS } from '../../../src/between/plan.ts';
import { POOL_LIMITS } from '../../../src/daemon/pool.ts';
import {
  type CheckedSettings,
  type DaemonSettings,
  readSettings,
  watchSettings,
} from '../../../src/daemon/settings.ts';
import { OBSERVE_CHOICES } from '../../../src/observe/observer.ts';
import { WATCH_SETTINGS } from '../../../src/watch/settings.ts';

const BASE: DaemonSettings = {
  pool: POOL_LIMITS,
  deadlines: { ADD: 5_000, DEL: 7_000 },
  observe: { ...OBSERVE_CHOICES, traceDir: '/run/catena/traces' },
  watch: WATCH_SETTINGS,
  between: BETWEEN_SETTINGS,
};

let file: string;
beforeEach(() => {
  file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'cat-settings-')), 'daemon.json');
});
afterEach(() => fs.rmSync(path.dirname(file), { recursive: true }));

function settingsIn(text: string, env: Record<string, string> = {}): CheckedSettings {
  fs.writeFileSync(file, text);
  return readSettings(file, BASE, env);
}

describe('readSettings()', () => {
  test('changes only what the file sets', () => {
    const { observer: _, ...settings } = settingsIn(
      '{"workers": 9, "memoryPerWorkerMiB": 64, "idleSeconds": 7}',
    );
    expect(settings).toEqual({
      ...BASE,
      pool: { ...POOL_LIMITS, workers: 9, bytes: 64 * 1024 * 1024, idleMs: 7_000 },
    });
  });

  test('says where nodes are read from, and how they are reached', () => {
    expect(settingsIn('{"nodes": "/etc/nodes", "nodeWays": "vxlan", "vxlanPort": 8473}').between).toEqual({
      ...BETWEEN_SETTINGS,
      nodes: '/etc/nodes',
      ways: 'vxlan',
      port: 8473,
    });
    expect(settingsIn('{"nodes": "kubernetes"}').between.nodes).toBe('kubernetes');
    expect(() => settingsIn('{"nodes": "etcd"}')).toThrow(
      '"nodes" must be "kubernetes", "blocks" or an absolute path',
    );
    expect(settingsIn('{"leftoverSeconds": 0}').watch.leftoverMs).toBe(0);
    expect(settingsIn('{"vxlanId": 16777215}').between.vni).toBe(16_777_215);
    expect(() => settingsIn('{"vxlanId": 16777216}')).toThrow('vxlanId');
  });

  test('names unknown keys', () => {
    expect(() => settingsIn('{"worker": 9}')).toThrow('"worker" is not a known key');
    expect(() => settingsIn('{"timeouts": {"ad": 1, "d": 2}}')).toThrow(
      '"timeouts.ad", "timeouts.d" are not known keys',
    );
  });

  test('sets the deadlines of plugins, by verb', () => {
    expect(settingsIn('{"timeouts": {"add": 1.5, "gc": 90}}').deadlines).toEqual({
      ADD: 1_500,
      DEL: 7_000,
      GC: 90_000,
    });
  });

  test('sets the destinations of logs, traces and spans', () => {
    const text = JSON.stringify({
      log: ['journal', 'file:/var/log/catena.log'],
      logLevel: 'warn,portmap=debug',
      logMaxBytes: 1000,
      logMaxFiles: 2,
      traces: 7,
      traceDir: '/var/traces',
      otlpEndpoint: 'http://collector:4318',
    });
    expect(settingsIn(text).observer).toMatchObject({
      levels: { level: 'warn', plugins: { portmap: 'debug' } },
      destinations: [
        { kind: 'journal' },
        { kind: 'file', path: '/var/log/catena.log', maxBytes: 1000, maxFiles: 2 },
      ],
      traceDir: '/var/traces',
      traceLimits: { maxRecords: 7 },
      otlp: { url: 'http://collector:4318/v1/traces' },
    });
    const none = settingsIn('{"log": "none", "traces": 0}', { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c' });
    expect(none.observer).toMatchObject({ destinations: [], otlp: { url: 'http://c/v1/traces' } });
    expect(none.observer).not.toHaveProperty('traceDir');
  });

  test.each([
    ['is no JSON', '{', 'JSON'],
    ['has an unknown key', '{"worker": 1}', 'worker'],
    ['has an invalid number', '{"workers": 0}', 'workers'],
    ['has a verb that is none', '{"timeouts": {"ad": 1}}', 'ad'],
    ['has a place that is none', '{"log": "printer"}', 'Cannot log to "printer"'],
    ['has a level that is none', '{"logLevel": "loud"}', 'Cannot use log level "loud"'],
    ['has a collector that is none', '{"otlpEndpoint": "collector"}', 'expected an http or https URL'],
    ['has a relative directory', '{"traceDir": "traces"}', 'absolute path'],
  ])('refuses a file that %s', (_what, text, word) => {
    expect(() => settingsIn(text)).toThrow(word);
    expect(() => settingsIn(text)).toThrow(file);
  });

  test('refuses a missing file', () => {
    expect(() => readSettings(file, BASE, {})).toThrow(`Cannot read settings "${file}"`);
  });
});

describe('watchSettings()', () => {
  test('applies a file that changes, and reports one that became invalid', async () => {
    fs.writeFileSync(file, '{"workers": 1}');
    const told: (number | string)[] = [];
    const stop = watchSettings(
      file,
      BASE,
      {},
      ({ pool }) => void told.push(pool.workers),
      problem => void told.push(problem),
    );
    const write = async (text: string): Promise<void> => {
      const before = told.length;
      // A new file in its place, as editors do; its time differs by more than the clock of the file system can show.
      for (let i = 1; told.length === before && i < 200; i++) {
        fs.writeFileSync(`${file}.new`, text);
        fs.utimesSync(`${file}.new`, i, Date.now() / 1000 + i);
        fs.renameSync(`${file}.new`, file);
        await Bun.sleep(300);
      }
    };
    await write('{"workers": 2}');
    await write('{"workers": "many"}');
    stop();
    expect(told[0]).toBe(2);
    expect(told.some(one => String(one).startsWith('Cannot use settings'))).toBe(true);
  });
});
