import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  findGeneration,
  forgetGeneration,
  listGenerations,
  listRecentlyBegun,
  noteGeneration,
} from '../../../src/attachments/generation.ts';
import { digestOf, isSameContainer } from '../../../src/cni/attachment.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-generation-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
const LONG = { network: 'n'.repeat(240), containerId: 'c'.repeat(240), ifname: 'eth0' };

describe('noteGeneration()', () => {
  test.each([ID, LONG])('leaves a note that names the attachment, however long its names are', id => {
    expect(noteGeneration(dir, id, { renew: true, boot: 'b' })).toBeString();
    const { containerId, ifname } = id;
    const note = findGeneration(dir, id);
    expect(note).toEqual({
      token: expect.stringMatching(/^b\.[0-9a-f-]{36}$/),
      boot: 'b',
      isOurs: false,
      time: expect.any(Number),
      containerId,
      ifname,
    });
    expect(listGenerations(dir, id.network)).toEqual([note as NonNullable<typeof note>]);
    forgetGeneration(dir, id);
    forgetGeneration(dir, id);
    expect(listGenerations(dir, id.network)).toEqual([]);
  });

  test('starts another generation on request, and otherwise keeps the existing one', () => {
    noteGeneration(dir, ID, { renew: true, boot: 'b' });
    const first = findGeneration(dir, ID)?.token;
    expect(noteGeneration(dir, ID, { renew: false, boot: 'b' })).toBeUndefined();
    expect(findGeneration(dir, ID)?.token).toBe(first as string);
    expect(noteGeneration(dir, ID, { renew: true, boot: 'b', isOurs: true })).toBeString();
    expect(findGeneration(dir, ID)).toMatchObject({ boot: 'b', isOurs: true });
    expect(findGeneration(dir, ID)?.token).not.toBe(first as string);
  });

  test('reports why it cannot write the note', () => {
    fs.writeFileSync(path.join(dir, 'generations'), '');
    expect(() => noteGeneration(dir, ID, { renew: true, boot: 'b' })).toThrow('ENOTDIR');
    expect(listGenerations(dir, 'podnet')).toEqual([]);
  });
});

test('listRecentlyBegun() leaves out notes that are too old to be in progress', () => {
  noteGeneration(dir, ID, { renew: true, boot: 'b' });
  noteGeneration(dir, { ...ID, containerId: 'c2' }, { renew: true, boot: 'b' });
  const old = path.join(dir, 'generations/podnet/c1:eth0');
  fs.lutimesSync(old, 0, 0);
  expect(listRecentlyBegun(dir, 'podnet').map(({ containerId }) => containerId)).toEqual(['c2']);
});

test('isSameContainer() recognises a long container id by its digest', () => {
  const digest = `~${digestOf('c1')}`;
  for (const id of ['c1', digest]) {
    for (const other of ['c1', digest]) expect(isSameContainer(id, other)).toBe(true);
    for (const other of ['c2', `~${digestOf('c2')}`]) expect(isSameContainer(id, other)).toBe(false);
  }
});
