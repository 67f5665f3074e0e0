// How does a call of a plugin write the generation of its attachment? (GC uses those of others: collection.ts)

import {
  findGeneration,
  forgetGeneration,
  hasEntry,
  noteGeneration,
  restoreGeneration,
} from '../attachments/generation.ts';
import { isBeingRemoved, RUNNER_VARIABLE } from '../attachments/lock.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { cniCacheDir, runDir } from '../cni/directories.ts';
import { CniError, describeError, ErrorCode } from '../cni/errors.ts';
import { type JsonObject, memberOf } from '../cni/json.ts';
import { bootId } from '../files/process-stat.ts';
import type { Log } from '../log.ts';
import { pause } from '../wait.ts';

/** The part of a call that its generation needs. */
interface NotedCall {
  readonly attachment: AttachmentId;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly request: JsonObject;
  readonly log: Log;
}

/**
 * Runs an ADD with a note of its generation. The first plugin of an ADD, which gets no previous result, begins a
 * new generation. If the note cannot be written, ADD continues without: GC then has only its list to go by.
 */
export async function underNote<T>(call: NotedCall, add: () => Promise<T>): Promise<T> {
  const { attachment, environment, request, log } = call;
  const dir = runDir(environment);
  const before = tokenOf(call);
  let token: string | undefined;
  try {
    const renew = memberOf(request, 'prevResult') === undefined;
    const isOurs = environment[RUNNER_VARIABLE] !== undefined;
    token = noteGeneration(dir, attachment, { renew, boot: bootId(environment), isOurs });
  } catch (cause) {
    log.debug(`Cannot write a note of the ADD in "${dir}": ${describeError(cause)}; GC may miss it`);
  }
  try {
    if (token !== undefined) await outwaitRemoval(call, token);
    return await add();
  } catch (thrown) {
    // An ADD of an attachment that exists already is refused, and leaves that one its note.
    if (token !== undefined && tokenOf(call) === token) forget(call, before);
    throw thrown;
  }
}

/** Longest wait for the removal of an earlier attachment of the same name. */
const REMOVAL_MS = 10_000;
const LOOK_AGAIN_MS = 20;

/**
 * Waits for a removal that may have looked for notes before ours was written. Its plugins remove notes of this name, ours among them,
 * which the next removal has to see.
 * @throws CniError 11
 */
async function outwaitRemoval({ attachment, environment }: NotedCall, token: string): Promise<void> {
  const dir = runDir(environment);
  const until = performance.now() + REMOVAL_MS;
  while (isBeingRemoved(environment, attachment)) {
    if (performance.now() > until) {
      const { network, containerId, ifname } = attachment;
      throw new CniError(
        ErrorCode.tryAgainLater,
        `Cannot attach interface "${ifname}" of container "${containerId}" to network "${network}": an earlier attachment of that name is still being deleted`,
      );
    }
    await pause(LOOK_AGAIN_MS);
    if (findGeneration(dir, attachment)?.token !== token) restoreGeneration(dir, attachment, token);
  }
}

/**
 * Whether an attachment exists: one that does has a note, unless that was lost with the run directory, and then its runtime's entry. A long
 * id is not in its alias, and may be anyone's.
 */
export function isAttached(environment: NotedCall['environment'], named: AttachmentId): boolean {
  if (named.containerId.startsWith('~') || tokenOf({ attachment: named, environment })) return true;
  return hasEntry(cniCacheDir(environment), named);
}

function tokenOf({
  attachment,
  environment,
}: Pick<NotedCall, 'attachment' | 'environment'>): string | undefined {
  return findGeneration(runDir(environment), attachment)?.token;
}

/**
 * Removes the note of an attachment that is deleted. A DEL does so before it deletes anything: a repair during the DEL sees by the
 * missing note that it has begun.
 * @param before the note to put in its place
 */
export function forget({ attachment, environment, log }: Omit<NotedCall, 'request'>, before?: string): void {
  const dir = runDir(environment);
  try {
    if (before === undefined) forgetGeneration(dir, attachment);
    else restoreGeneration(dir, attachment, before);
  } catch (cause) {
    log.debug(`Cannot remove a note in "${dir}": ${describeError(cause)}; GC removes it`);
  }
}
