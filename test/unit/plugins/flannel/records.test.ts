import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  findRecord,
  listRecords,
  removeRecord,
  sweepRecords,
  writeRecord,
} from '../../../../plugins/flannel/records.ts';

const tmp = fs.mkdtempSync(join(tmpdir(), 'cat-flannel-'));
afterAll(() => fs.rmSync(tmp, { recursive: true }));

let count = 0;
const fresh = () => join(tmp, String(count++));
const [ETH0, NET1] = [
  { containerId: 'c1', ifname: 'eth0' },
  { containerId: 'c1', ifname: 'net1' },
];

describe('records of flannel', () => {
  test("are found under our name and the reference's, and deleted together", () => {
    const dir = fresh();
    writeRecord(dir, ETH0, { type: 'bridge' });
    expect(fs.readdirSync(dir).sort()).toEqual(['c1', 'c1:eth0']);
    expect(JSON.parse(fs.readFileSync(join(dir, 'c1'), 'utf8'))).toEqual({ type: 'bridge' });
    expect(fs.statSync(join(dir, 'c1')).mode & 0o777).toBe(0o600);
    expect(findRecord(dir, ETH0)).toEqual({ type: 'bridge' });
    expect(listRecords(dir)).toEqual([ETH0]);
    removeRecord(dir, ETH0);
    removeRecord(dir, ETH0);
    expect(fs.readdirSync(dir)).toEqual([]);
  });

  test('of two attachments of one container do not overwrite each other', () => {
    const dir = fresh();
    writeRecord(dir, ETH0, { mtu: 1 });
    writeRecord(dir, NET1, { mtu: 2 });
    expect([findRecord(dir, ETH0), findRecord(dir, NET1)]).toEqual([{ mtu: 1 }, { mtu: 2 }]);
    expect(JSON.parse(fs.readFileSync(join(dir, 'c1'), 'utf8'))).toEqual({ mtu: 1 });
    removeRecord(dir, NET1);
    expect(fs.readdirSync(dir).sort()).toEqual(['c1', 'c1:eth0']);
    removeRecord(dir, ETH0);
    expect(fs.readdirSync(dir)).toEqual([]);
  });

  test('of the reference are read and removed, and replaced by a later ADD', () => {
    const dir = fresh();
    fs.mkdirSync(dir);
    fs.writeFileSync(join(dir, 'c1'), '{"mtu":3}');
    expect(findRecord(dir, ETH0)).toEqual({ mtu: 3 });
    removeRecord(dir, ETH0);
    expect(fs.readdirSync(dir)).toEqual([]);
    fs.writeFileSync(join(dir, 'c1'), '{"mtu":3}');
    writeRecord(dir, ETH0, { mtu: 4 });
    expect(JSON.parse(fs.readFileSync(join(dir, 'c1'), 'utf8'))).toEqual({ mtu: 4 });
  });

  test('that are written again stay one file', () => {
    const dir = fresh();
    writeRecord(dir, ETH0, { mtu: 1 });
    writeRecord(dir, ETH0, { mtu: 2 });
    expect(fs.readdirSync(dir).sort()).toEqual(['c1', 'c1:eth0']);
    expect(fs.readFileSync(join(dir, 'c1'), 'utf8')).toBe('{"mtu":2}');
  });

  test('that are truncated are reported', () => {
    const dir = fresh();
    fs.mkdirSync(dir);
    fs.writeFileSync(join(dir, 'c1'), '');
    expect(() => findRecord(dir, ETH0)).toThrow(`Cannot decode delegate's configuration in "${dir}/c1"`);
  });

  test('that a killed ADD left unfinished are no records, and are deleted by DEL', () => {
    const dir = fresh();
    fs.mkdirSync(dir);
    const half = join(dir, '.c1:eth0');
    for (const left of [
      () => fs.writeFileSync(half, '{"mt'),
      () => {
        writeRecord(dir, ETH0, { mtu: 1 });
        fs.linkSync(join(dir, 'c1'), half);
      },
    ]) {
      left();
      expect(listRecords(dir)).toEqual(fs.existsSync(join(dir, 'c1')) ? [ETH0] : []);
      removeRecord(dir, ETH0);
      expect(fs.readdirSync(dir)).toEqual([]);
    }
  });

  test('that are unfinished for long are removed by GC', () => {
    const dir = fresh();
    writeRecord(dir, ETH0, { mtu: 1 });
    for (const name of ['.c2:eth0', '.c3:eth0', 'c4.new']) fs.writeFileSync(join(dir, name), '{"mt');
    for (const name of ['.c2:eth0', 'c1:eth0', 'c4.new']) fs.utimesSync(join(dir, name), 0, 0);
    sweepRecords(dir);
    expect(fs.readdirSync(dir).sort()).toEqual(['.c3:eth0', 'c1', 'c1:eth0', 'c4.new']);
  });

  test('do not exist without a directory', () => {
    expect([findRecord('/nonexistent', ETH0), listRecords('/nonexistent')]).toEqual([undefined, []]);
  });
});
