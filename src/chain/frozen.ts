// What does the record of an ADD say about how to check and delete the attachment?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';
import type { AttachmentId, CachedAttachment } from './cache-record.ts';
import { type Conflist, parseFrozen } from './conflist.ts';
import { findKnown, type Known } from './known.ts';
import { cacheFileOf, readAttachment } from './result-cache.ts';
import { type Attachment, cacheDirOf, type Runtime } from './runtime.ts';

/**
 * The configuration with which an attachment was made, when it is on record: what to delete it with after its file
 * is gone.
 */
export function findFrozenNetwork(id: AttachmentId, runtime: Runtime): Conflist | undefined {
  return findFrozen(findKnown(id, runtime), runtime);
}

/**
 * The result of an attachment's ADD, in the version of the list; undefined when none is on record.
 * @throws CniError 5 and 6 for a record that cannot be read, 1 and 7 for a result that cannot be converted
 */
export function findCachedResult(
  list: Conflist,
  { containerId, ifname }: Pick<Attachment, 'containerId' | 'ifname'>,
  runtime: Runtime,
): JsonObject | undefined {
  const cached = readAttachment(cacheDirOf(runtime), { network: list.name, containerId, ifname });
  return cached?.result && convertResult(cached.result, list.version, 'cached result');
}

/** The list as it was at ADD. One that is not usable is reported, and the caller's stands in for it. */
export function findFrozen(known: Known | undefined, runtime: Runtime): Conflist | undefined {
  if (known?.source === undefined) return undefined;
  const place = known.file
    ? `record "${known.file}"`
    : `cached result "${cacheFileOf(cacheDirOf(runtime), known)}"`;
  try {
    const list = parseFrozen(known.source);
    if (list.name === known.network) return list;
    warn(`Cannot use configuration in ${place}: it is of network "${list.name}"`);
  } catch (cause) {
    warn(`Cannot use configuration in ${place}: ${(cause as Error).message}`);
  }
  return undefined;

  function warn(message: string): void {
    runtime.onWarning?.(new CniError(ErrorCode.decodingFailure, message));
  }
}

/** As in the reference: arguments of the ADD where there were any, capability arguments always. */
export function withCachedArgs(attachment: Attachment, cached: CachedAttachment | undefined): Attachment {
  if (cached?.source === undefined) return attachment;
  const { containerId, ifname, netns } = attachment;
  const args = cached.args.length ? cached.args : (attachment.args ?? []);
  return { containerId, ifname, netns, args, capabilityArgs: cached.capabilityArgs };
}

/** The name of an attachment to a network. */
export function idOf(list: Conflist, { containerId, ifname }: Attachment): AttachmentId {
  return { network: list.name, containerId, ifname };
}

/** What the record of an ADD holds besides its result. */
export function toCached(list: Conflist, attachment: Attachment): Omit<CachedAttachment, 'result'> {
  const { netns, args = [], capabilityArgs = {} } = attachment;
  return { ...idOf(list, attachment), netns, args, capabilityArgs, source: list.source };
}
