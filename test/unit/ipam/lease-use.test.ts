// Is a lease that no interface has told from one whose ADD may be in progress?

import { afterAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspectLease } from '../../../src/ipam/lease-use.ts';

const dir = mkdtempSync(join(tmpdir(), 'catena-inspect-'));
afterAll(() => rmSync(dir, { recursive: true }));

test.each([
  [0, 'new'],
  [-50, 'new'],
  [-70, 'unused'],
  // The clock was set back since.
  [50, 'new'],
  [3600, 'unused'],
])('a lease that is dated %d s from now is %s', (seconds, state) => {
  const path = join(dir, '10.1.0.2');
  writeFileSync(path, 'c1\r\neth0');
  const time = Date.now() / 1000 + seconds;
  utimesSync(path, time, time);
  const witnesses = { findRecord: () => undefined, holders: new Map() };
  expect(inspectLease(dir, '10.1.0.2', witnesses)).toMatchObject({
    state,
    owner: { containerId: 'c1' },
  } as never);
});
