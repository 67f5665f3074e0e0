// Does the runner keep its log file as short as "logOptions" says, and never let a call pay for it?

import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { CatenaConf } from '../../../../plugins/catena/config.ts';
import { boundLogFile } from '../../../../plugins/catena/runner.ts';
import { decode } from '../../../../src/cni/json.ts';
import { until } from '../../../helpers/until.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-log-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }));

const conf = (logOptions?: object, logFile = path.join(dir, 'catena.log')) =>
  decode(CatenaConf, { type: 'catena', logFile, ...(logOptions ? { logOptions } : {}) }, 'configuration');
const fill = (mebibytes: number) =>
  fs.writeFileSync(path.join(dir, 'catena.log'), Buffer.alloc(mebibytes * 1024 * 1024, 'x'));
const files = () => fs.readdirSync(dir).sort();
const old = 'catena-2020-01-01T00-00-00.000.log';

test('boundLogFile() rotates a full file, without compressing it in a single call', async () => {
  fill(1);
  await boundLogFile(conf({ maxSize: 2 }), false);
  expect(files()).toEqual(['catena.log']);
  await boundLogFile(conf({ maxSize: 1, maxBackups: 1 }), false);
  expect(files()).toEqual([expect.stringMatching(/^catena-20.*\.log$/)]);
});

test('boundLogFile() keeps the same files as multus by default', async () => {
  fs.writeFileSync(path.join(dir, old), '');
  fill(100);
  await boundLogFile(conf(), false);
  expect(files()).toEqual([expect.stringMatching(/^catena-2(?!020)/)]);
});

test('boundLogFile() compresses in a long-lived process, also files of other programs', async () => {
  fs.writeFileSync(path.join(dir, old), 'a line\n');
  await boundLogFile(conf({ maxAge: 0 }), true);
  await until(() => files().join() === `${old}.gz`);
  fill(1);
  await boundLogFile(conf({ maxSize: 1, maxAge: 0, compress: false }), true);
  expect(files()).toEqual([`${old}.gz`, expect.stringMatching(/\.log$/)]);
});

test('boundLogFile() never fails a call', async () => {
  await boundLogFile(conf(undefined, '/proc/nowhere/log'), true);
  await boundLogFile(conf(undefined, undefined), true);
});

test.each([{ maxSize: '1' }, { maxAge: -1 }, { compress: 'yes' }])('logOptions %j is refused', logOptions => {
  expect(() => conf(logOptions)).toThrow('logOptions.');
});
