import { expect, test } from 'bun:test';
import { endRunner, startRunner } from '../../../src/attachments/lock.ts';
import { type AttachmentRecord, begunAdd } from '../../../src/attachments/notes.ts';
import { pastOf } from '../../../src/attachments/past.ts';
import { bootId } from '../../../src/files/process-stat.ts';
import { intentOf } from '../../helpers/journal.ts';

const dead = startRunner();
endRunner(dead);
const base = begunAdd(intentOf({ boot: bootId(), runner: dead }), '/state/note');
const attached = { phase: 'attached', added: true } as const;
const change = { to: { capabilityArgs: {}, source: '{}' }, plugins: [], op: 'x' };
const busy = [{ code: 11, msg: 'busy' }];

test.each([
  ['settled', undefined, attached],
  ['changing', undefined, { ...attached, change }],
  ['adding', 'its ADD was interrupted', {}],
  ['deleting', 'its DEL was interrupted', { phase: 'deleting', change }],
  ['left', 'its DEL failed once: busy', { phase: 'failed', attempts: 1, lastErrors: busy }],
  ['left', 'its DEL failed 3 times: busy', { phase: 'failed', attempts: 3, lastErrors: busy }],
  ['outlived', 'it is from an earlier boot of the machine', { ...attached, boot: 'earlier' }],
  ['outlived', 'it is from an earlier boot of the machine', { boot: 'earlier' }],
  ['settled', undefined, { ...attached, boot: 'earlier', foreign: true }],
  [
    'outlived',
    'it is from an earlier boot of the machine',
    { phase: 'deleting', boot: 'earlier', foreign: true },
  ],
] as [string, string | undefined, Partial<AttachmentRecord>][])('%s (%s): %j', (kind, why, more) => {
  const record = { ...base, ...more };
  const stands = more.phase === 'attached';
  expect(pastOf(record, process.env)).toMatchObject({
    kind,
    why,
    stands,
    holder: undefined,
    toDelete: why,
  } as never);
});

test('what a process works on, or was made in another network namespace, stays', () => {
  const runner = startRunner();
  expect(pastOf({ ...base, runners: [runner] }, process.env)).toMatchObject({
    holder: runner,
    toDelete: undefined,
  });
  endRunner(runner);
  const elsewhere = { ...base, hostCookie: '1' };
  expect(pastOf(elsewhere, process.env)).toMatchObject({ kind: 'elsewhere', toDelete: undefined });
});
