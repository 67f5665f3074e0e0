// What do tests of the journal need?
import fs from 'node:fs';
import path from 'node:path';
import { parseEntry, writeEntry } from '../../src/attachments/entries.ts';
import { type HeldKnown, tryHold } from '../../src/attachments/hold.ts';
import { endRunner, type Purpose, startRunner } from '../../src/attachments/lock.ts';
import {
  begunAdd,
  entryOf,
  type Intent,
  type KnownAttachment,
  keepCacheDir,
  noteFiles,
  ofEntry,
  readNote,
  renderNote,
} from '../../src/attachments/notes.ts';
import { listAttachments } from '../../src/attachments/store.ts';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { thisProcess } from '../../src/files/process-stat.ts';

/** An intent as an ADD of this process would write it, with the given changes. */
export function intentOf(more: Partial<Intent> = {}): Intent {
  return {
    network: 'testnet',
    containerId: 'c1',
    ifname: 'eth0',
    netns: '/run/netns/none',
    netnsIdentity: undefined,
    boot: 'this-boot',
    owner: 'test',
    args: [['K', 'v']],
    capabilityArgs: { mac: '0a:00:00:00:00:01' },
    source: '{"cniVersion":"1.1.0","name":"testnet","plugins":[{"type":"noop"}]}',
    pluginDirs: ['/opt/cni/bin'],
    executables: ['/opt/cni/bin/noop'],
    cacheDir: '/var/lib/cni',
    runner: startRunner(),
    ...more,
  };
}

/** A settled attachment, as an ADD of this process leaves it. */
export function settle(stateDir: string, intent: Intent): void {
  keepCacheDir(stateDir, intent.cacheDir);
  writeEntry(intent.cacheDir, entryOf(stateDir, intent));
  endRunner(intent.runner);
}

/** An entry without our member, as another runtime's ADD of the same attachment leaves it. */
export function withoutOurs(file: string): string {
  const { catena: _, ...entry } = JSON.parse(fs.readFileSync(file, 'utf8'));
  const text = JSON.stringify(entry);
  fs.writeFileSync(file, text);
  return text;
}

/** The note of the ADD that has written an entry, as its runner leaves it that dies before that, after its last plugin. */
export function unfinished(file: string): string {
  const entry = parseEntry(fs.readFileSync(file, 'utf8'), file, undefined);
  const record = ofEntry(entry, path.dirname(path.dirname(file)), ['state']);
  if (record.foreign) throw new Error(`"${file}" is not ours`);
  const runner = { ...record.runner, pid: 999_999, start: '1', pidns: thisProcess().pidns };
  const segment = JSON.parse(record.source).plugins.length - 1;
  return renderNote({ ...begunAdd({ ...record, runner }, record.file), segment });
}

/** What a journal has of attachments: its notes, then what is settled. */
export function recordsIn(stateDir: string): KnownAttachment[] {
  const notes = noteFiles(stateDir, undefined).flatMap(file => readNote(file, stateDir) ?? []);
  const { attachments } = listAttachments({ journals: [stateDir] });
  return [...notes, ...attachments.filter(({ isNoted }) => !isNoted)];
}

/** Holds a recorded attachment, and begins its DEL if it is for that: until it is released, or by endClaims(). */
export function mustClaim(stateDir: string, id: AttachmentId, purpose: Purpose = 'del'): HeldKnown {
  const held = tryHold(id, { stateDir, purpose });
  if ('holder' in held || !held.known) throw new Error(`Cannot hold ${JSON.stringify(id)}`);
  if (purpose === 'del') held.beginDel();
  claims.push(held.known);
  return held.known;
}

/** Gives back what a test has held and not released: the run directory outlives it. */
export function endClaims(): void {
  for (const held of claims.splice(0)) held.release();
}

const claims: HeldKnown[] = [];

/** Every file below a directory, by its relative path; symbolic links are not followed. */
export function filesBelow(dir: string): string[] {
  if (!fs.existsSync(dir)) return [];
  return fs
    .readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter(entry => !entry.isDirectory())
    .map(entry => path.relative(dir, path.join(entry.parentPath, entry.name)))
    .sort();
}
