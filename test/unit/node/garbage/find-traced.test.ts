// Is what the kernel holds of an attachment judged by all that it names, and is what other networks hold left alone?
import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { noteGeneration } from '../../../../src/attachments/generation.ts';
import { renderOwner } from '../../../../src/cni/attachment.ts';
import { parseIp } from '../../../../src/net/ip.ts';
import type { Tables } from '../../../../src/netlink/tables.ts';
import { findTraced, listKernelTraces, type Witnesses } from '../../../../src/node/garbage/find-traced.ts';

const noteOf = (containerId: string, network = 'net') =>
  renderOwner({ network, containerId, ifname: 'eth0' }, 200);

/** An element of a map with a host's address and a pod's, as for hairpin traffic. */
const element = (containerId: string, network?: string) => ({
  ...{ table: { family: 'inet', name: 't' }, set: 's', comment: noteOf(containerId, network) },
  key: [parseIp('192.0.2.1'), parseIp('10.1.0.2')],
});

const device = (kind: string, index: number, network?: string) => ({
  ...{ kind, index, name: `${kind}${index}`, attrs: { alias: noteOf('c1', network) } },
});

const NONE: Witnesses = {
  farEnds: new Map(),
  holderOf: () => undefined,
  isLedTo: () => false,
  lesseeOf: () => undefined,
};

function evidenceOf(held: object, more: Partial<Witnesses> = {}): string[] {
  const tables = { links: [], ownElements: [], ...held } as unknown as Tables;
  return listKernelTraces(tables, 'net', { ...NONE, ...more }).map(({ evidence }) => evidence);
}

test('an element is used if any of its addresses is', () => {
  const held = { ownElements: [element('c1')] };
  expect(evidenceOf(held)).toEqual(['unused']);
  for (const used of ['192.0.2.1', '10.1.0.2'])
    expect(evidenceOf(held, { holderOf: ip => (ip === used ? 'it is used' : undefined) })).toEqual(['used']);
});

test('an element is unused once its address is leased to another container, though a pod has it', () => {
  const lesseeOf = (containerId: string) => (ip: string) =>
    ip === '10.1.0.2' ? { containerId, ifname: 'eth0' } : undefined;
  const holderOf = (ip: string) => (ip === '10.1.0.2' ? 'a pod has it' : undefined);
  const held = { ownElements: [element('c1')] };
  expect(evidenceOf(held, { holderOf, lesseeOf: lesseeOf('c2') })).toEqual(['unused']);
  expect(evidenceOf(held, { holderOf, lesseeOf: lesseeOf('c1') })).toEqual(['used']);
});

test('a pair is used while its other end is somewhere, an ifb while packets are redirected to it', () => {
  const links = [device('veth', 7), device('ifb', 8)];
  expect(evidenceOf({ links })).toEqual(['unused', 'unused']);
  expect(evidenceOf({ links }, { farEnds: new Map([[7, '/run/netns/a']]) })).toEqual(['used', 'unused']);
  expect(evidenceOf({ links }, { isLedTo: index => index === 8 })).toEqual(['unused', 'used']);
});

test('what other networks hold, and what names no attachment, is no trace', () => {
  const links = [device('veth', 7, 'other'), { ...device('veth', 8), attrs: {} }];
  const ownElements = [element('c1', 'other'), { ...element('c1'), comment: 'of an operator' }];
  expect(evidenceOf({ links, ownElements })).toEqual([]);
});

test('an ADD that has begun is listed once, with what it has made or with its note alone', () => {
  const runDir = mkdtempSync(join(tmpdir(), 'cat-traced-'));
  try {
    for (const containerId of ['c1', 'c2'])
      noteGeneration(runDir, { network: 'net', containerId, ifname: 'eth0' }, { renew: true, boot: 'b' });
    const tables = { links: [], ownElements: [element('c1')], qdiscs: [], ask: () => [] };
    const where = { runDir, tables: tables as unknown as Tables, findUse: () => undefined };
    const found = findTraced({ name: 'net', plugins: [] }, [], { ...where, find: () => undefined });
    expect(found.map(({ containerId, traces }) => [containerId, traces[0]?.split(' ')[0]])).toEqual([
      ['c1', 'element'],
      ['c2', 'note'],
    ]);
  } finally {
    rmSync(runDir, { recursive: true });
  }
});
