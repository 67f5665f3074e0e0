// Are our own files handled after others have damaged them: journal, result cache, settings, backups, traces?
import fs from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { addressesOf, routesOf } from '../../../plugins/host-device/capture.ts';
import { type DeviceRecord, parseRecord as parseDevice } from '../../../plugins/host-device/record.ts';
import { findBackup, findStaleBackups } from '../../../plugins/tuning/backup.ts';
import { listEntries, parseEntry as parseCached } from '../../../src/attachments/entries.ts';
import { lastBegun, noteFileOf, notesDir, parseNote } from '../../../src/attachments/notes.ts';
import { listAttachments } from '../../../src/attachments/store.ts';
import { BETWEEN_SETTINGS } from '../../../src/between/plan.ts';
import { ErrorCode } from '../../../src/cni/errors.ts';
import { POOL_LIMITS } from '../../../src/daemon/pool.ts';
import { type DaemonSettings, readSettings } from '../../../src/daemon/settings.ts';
import { parsePod } from '../../../src/delegate/record.ts';
import { parseCidr, parseIp } from '../../../src/net/ip.ts';
import { addrMessage } from '../../../src/netlink/rtnl/addr.ts';
import { routeMessage } from '../../../src/netlink/rtnl/route.ts';
import { OBSERVE_CHOICES } from '../../../src/observe/observer.ts';
import { listTraces } from '../../../src/observe/watcher.ts';
import { renderList, renderWaterfall } from '../../../src/observe/waterfall.ts';
import { WATCH_SETTINGS } from '../../../src/watch/settings.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedJsonText, damagedText, editedText } from '../mutate.ts';
import { answersOrRefuses } from '../promise.ts';
import { LIST_TEXTS, NOTES, RESULTS } from '../samples.ts';

const recordText = damagedJsonText(NOTES);
const anyRecord = fc.oneof(
  recordText,
  recordText.chain(text => editedText([text])),
  damagedText(['{"record":2}\n']),
);

/** The record of an attachment. */
export const journal = door({
  name: 'journal record',
  weight: 12,
  arbitrary: anyRecord,
  run(text) {
    const record = answersOrRefuses(() => parseNote(text, '/state/file'), ErrorCode.decodingFailure);
    if (record === undefined) return;
    const last = lastBegun(record, 3);
    if (!Number.isInteger(last) || last > 2 || last < -1)
      throw new Error(`the last plugin that began is ${last}`);
    answersOrRefuses(() => parsePod(record), ErrorCode.decodingFailure);
  },
});

/** A state directory with an invalid file under the name of a record. */
export const journalFile = door({
  name: 'journal directory',
  weight: 2,
  arbitrary: anyRecord,
  run(text) {
    const stateDir = ground().dir('state');
    const file = noteFileOf(stateDir, { network: 'podnet', containerId: 'c1', ifname: 'eth0' });
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, text);
    const { attachments: records, damaged } = listAttachments({ journals: [stateDir] });
    const note = answersOrRefuses(() => parseNote(text, file), ErrorCode.decodingFailure);
    // Of what had been attached and has no entry, nothing is left; and a change of another runtime's is recovered, not listed.
    const isOver = note?.added === true && note.attempts === 0;
    const isTheirs = note?.foreign === true && note.phase === 'attached';
    const found = records.length + damaged.length;
    if (found !== 1 && !((isOver || isTheirs) && found === 0))
      throw new Error('the file is neither read nor reported');
    if (records.some(record => noteFileOf(stateDir, record) !== file))
      throw new Error('it counts for another attachment');
    fs.rmSync(notesDir(stateDir), { recursive: true });
  },
});

const CACHED = {
  kind: 'cniCacheV1',
  containerId: 'c1',
  config: Buffer.from(LIST_TEXTS[0] ?? '').toString('base64'),
  ifName: 'eth0',
  networkName: 'podnet',
  netns: '/run/netns/c1',
  cniArgs: [['A', 'B']],
  capabilityArgs: {},
  result: RESULTS[0],
};

/** libcni's cache. */
export const cache = door({
  name: 'result cache',
  weight: 8,
  arbitrary: fc.tuple(damagedJsonText([CACHED, ...RESULTS]), fc.boolean()),
  run([text, named]) {
    const id = named ? { network: 'podnet', containerId: 'c1', ifname: 'eth0' } : undefined;
    answersOrRefuses(() => parseCached(text, '/cache/file', id), ErrorCode.decodingFailure);
    if (text.length % 4) return;
    const dir = ground().dir('cache');
    fs.mkdirSync(path.join(dir, 'results'), { recursive: true });
    fs.writeFileSync(path.join(dir, 'results', 'podnet-c1-eth0'), text);
    listEntries(dir);
  },
});

const SETTINGS: DaemonSettings = {
  pool: POOL_LIMITS,
  deadlines: {},
  observe: { ...OBSERVE_CHOICES, traceDir: '/run/catena/traces' },
  watch: WATCH_SETTINGS,
  between: BETWEEN_SETTINGS,
};

/** The daemon's settings. */
export const settings = door({
  name: 'settings',
  weight: 4,
  seeds: [JSON.stringify({ workers: 'y'.repeat(100_000) })],
  arbitrary: damagedJsonText([
    { workers: 2, callsPerWorker: 100, memoryPerWorkerMiB: 64, idleSeconds: 5 },
    {
      timeouts: { add: 1, del: 2.5 },
      log: ['console', 'file:/var/log/catena'],
      logLevel: 'info,portmap=debug',
    },
    { logMaxBytes: 1, logMaxFiles: 2, traces: 0, traceDir: '/run/t', otlpEndpoint: 'http://127.0.0.1:4318' },
  ]),
  run(text) {
    const file = path.join(ground().dir('settings'), 'settings.json');
    fs.writeFileSync(file, text);
    const limits = answersOrRefuses(() => readSettings(file, SETTINGS, {}), ErrorCode.invalidConfig);
    const numbers = Object.values({ ...limits?.pool });
    if (numbers.some(number => !(number >= 0))) throw new Error(`it gives ${JSON.stringify(limits)}`);
  },
});

/** The values that tuning saved before its first ADD. */
export const backup = door({
  name: 'tuning backup',
  weight: 3,
  // DEL would have written there, as root.
  seeds: [
    '{"sysctl":{"kernel/core_pattern":"|/tmp/x"}}',
    '{"sysctl":{"net/../kernel/core_pattern":"|/tmp/x"}}',
  ],
  arbitrary: damagedJsonText([
    {
      mac: '02:00:00:00:00:01',
      promisc: true,
      mtu: 1500,
      network: 'podnet',
      sysctl: { 'net/core/somaxconn': '1' },
    },
  ]),
  run(text) {
    const dir = ground().dir('backups');
    const file = path.join(dir, 'c1_eth0.json');
    fs.writeFileSync(file, text);
    const found = findBackup(file);
    for (const place of Object.keys(found?.sysctl ?? {})) {
      if (!/^net\/(?!.*(^|\/)\.\.(\/|$))/.test(place))
        throw new Error(`it would write to /proc/sys/${place}`);
    }
    findStaleBackups(dir, 'podnet', { has: () => false });
  },
});

/** 192.0.2.7/24 and a default route via 192.0.2.1, as the kernel tells them. */
const ADDRESS = Buffer.from(
  addrMessage.encode(
    { family: 2, prefix: 24, flags: 128, index: 3 },
    { address: parseIp('192.0.2.7'), local: parseIp('192.0.2.7'), label: 'ens4' },
  ),
);
const ROUTE = Buffer.from(
  routeMessage.encode(
    { family: 2, table: 254, protocol: 3, type: 1 },
    { gateway: parseIp('192.0.2.1'), oif: 3 },
  ),
);

const DEVICE: DeviceRecord = {
  id: 'i',
  boot: 'b',
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: { path: '/run/netns/c1', cookie: '4097' },
  name: 'ens4',
  ifindex: 3,
  kind: '',
  mac: '02:00:00:00:00:01',
  permanentMac: '02:00:00:00:00:01',
  parent: { bus: 'pci', name: '0000:03:00.0' },
  altNames: ['enp3s0'],
  alias: 'rack 7',
  node: '4711',
  flags: 0x1003,
  mtu: 1500,
  settings: { 27: 'AAAAAA==' },
  xdp: 0,
  txqlen: 1000,
  addresses: [{ what: '192.0.2.7/24', message: ADDRESS.toString('base64') }],
  routes: [{ what: '0.0.0.0/0 via 192.0.2.1', message: ROUTE.toString('base64') }],
  rules: [{ from: '192.0.2.7/32', table: 100, priority: 500 }],
};

/** What host-device noted of a device before its ADD. */
export const device = door({
  name: 'record of a device',
  weight: 3,
  // DEL would give a device of the host that name.
  seeds: [JSON.stringify({ ...DEVICE, name: '../../etc' }), JSON.stringify({ ...DEVICE, name: 'a b' })],
  arbitrary: damagedJsonText([DEVICE]),
  run(text) {
    const record = parseDevice(text);
    if (record === undefined) return;
    for (const name of [record.name, record.ifname]) {
      if (!/^[^/:\s]{1,15}$/.test(name)) throw new Error(`it would name a device "${name}"`);
    }
    // All of it can be given to the kernel.
    addressesOf(record, record.ifindex);
    routesOf(record, record.ifindex);
    for (const { from } of record.rules) parseCidr(from);
  },
});

const TRACE = {
  id: 'abc',
  verb: 'ADD',
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '',
  args: [],
  warm: true,
  startedAt: 1,
  start: '2026-01-01T00:00:00.000Z',
  durationMs: 5,
  queueMs: 0,
  plugins: [{ type: 'bridge', index: 0, startMs: 0, durationMs: 4 }],
  result: RESULTS[0],
};

/** Records of requests, as `catena log <id>` reads them. */
export const traces = door({
  name: 'trace ring',
  weight: 3,
  arbitrary: damagedJsonText([TRACE]),
  run(text) {
    const dir = ground().dir('traces');
    const file = path.join(dir, `${(1).toString(36).padStart(9, '0')}-abc.json`);
    fs.writeFileSync(file, text);
    const { records } = listTraces(dir);
    renderList(records);
    for (const record of records) renderWaterfall(record);
  },
});
