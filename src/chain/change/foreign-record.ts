// Which record has an attachment of another runtime while it is changed?
//
// The journal tells the process that finds it how to undo or finish a change whose runner died. The record goes when the change is
// over: of such an attachment, libcni's cached result is what is known.
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { bootId } from '../../files/boot-id.ts';
import { hostCookie } from '../../journal/elsewhere.ts';
import type { CachedAttachment } from '../../journal/entry.ts';
import { identifyNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord, Intent } from '../../journal/record.ts';
import type { Runner } from '../../journal/runner.ts';
import { markRecord, readRecord, replaceRecord } from '../../journal/store.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';

/**
 * Writes the record. Only with the lock of the attachment.
 * @param runner that has the lock
 * @param generation which ADD made it, if a note tells
 * @throws CniError 5
 */
export function recordForeign(
  stateDir: string,
  { source = '', result = {}, ...cached }: CachedAttachment,
  { runner, generation }: { readonly runner: Runner; readonly generation: string | undefined },
  runtime: ChainRuntime,
): AttachmentRecord {
  const intent: Intent = {
    ...cached,
    ...identifyNetns(cached.netns),
    ...hostCookie(),
    boot: bootId(runtime.env),
    owner: '',
    source,
    pluginDirs: runtime.pluginDirs,
    executables: [],
    cacheDir: cacheDirOf(runtime),
    foreign: true,
    ...(generation === undefined ? {} : { generation }),
    runner,
  };
  // Before the record: no process would find that if we died in between.
  markRecord(stateDir, cached);
  replaceRecord(stateDir, intent, [
    { event: 'link', verb: 'ADD', index: 0, result },
    { event: 'done', op: runner.op },
  ]);
  const record = readRecord(stateDir, cached);
  if (record) return record;
  throw new CniError(ErrorCode.ioFailure, `Cannot change the attachment: its record was removed at once`);
}
