// With which configuration and arguments of its ADD is an attachment checked and deleted?

import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { convertResult, type ResultOf } from '../../cni/result.ts';
import { cacheFileOf, readAttachment } from '../../journal/entries.ts';
import type { CachedAttachment } from '../../journal/entry.ts';
import type { RememberedAdd } from '../../journal/record.ts';
import { type Conflist, parseFrozen } from '../config/conflist.ts';
import { type Attachment, type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { findRemembered } from './remembered-add.ts';

/**
 * The configuration with which an attachment was made, if it is on record: DEL uses it after the configuration file
 * is gone.
 */
export function findNetworkOfAdd(id: AttachmentId, runtime: ChainRuntime): Conflist | undefined {
  return findConfigOfAdd(findRemembered(id, runtime), runtime);
}

/**
 * The result of an attachment's ADD, in the version of the list; undefined when none is on record.
 * @throws CniError 5 and 6 for a record that cannot be read, 1 and 7 for a result that cannot be converted
 */
export function findCachedResult(
  list: Conflist,
  { containerId, ifname }: Pick<Attachment, 'containerId' | 'ifname'>,
  runtime: ChainRuntime,
): ResultOf | undefined {
  const cached = readAttachment(cacheDirOf(runtime), { network: list.name, containerId, ifname });
  const result = cached?.result && convertResult(cached.result, list.version, 'cached result');
  return result as ResultOf | undefined;
}

/** The list as it was at ADD. If it is unusable, a warning is given and the caller falls back to its own list. */
export function findConfigOfAdd(
  known: RememberedAdd | undefined,
  runtime: ChainRuntime,
): Conflist | undefined {
  if (known?.source === undefined) return undefined;
  const place = known.file
    ? `record "${known.file}"`
    : `cached result "${cacheFileOf(cacheDirOf(runtime), known)}"`;
  try {
    const list = parseFrozen(known.source);
    if (list.name === known.network) return list;
    warn(`Cannot use configuration in ${place}: it is for network "${list.name}"`);
  } catch (cause) {
    warn(`Cannot use configuration in ${place}: ${(cause as Error).message}`);
  }
  return undefined;

  function warn(message: string): void {
    runtime.onWarning?.(new CniError(ErrorCode.decodingFailure, message));
  }
}

/** As in the reference: the ADD's arguments if it had any, and always its capability arguments. */
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
