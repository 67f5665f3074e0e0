// What is known of an attachment: the configuration and arguments of its ADD, with which it is checked and deleted, and whether it has outlived
// its namespace?

import { type KnownAttachment, pastOf, readAttachment } from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { cacheDirOf } from '../../cni/directories.ts';
import { decodingFailure, ErrorCode, orTell } from '../../cni/errors.ts';
import { convertResult, type ResultOf } from '../../cni/result.ts';
import { type Conflist, parseFrozen } from '../config/conflist.ts';
import type { Attachment, ChainRuntime } from '../run/runtime.ts';

/** What is known, whichever runtime made it. Unreadable files are ignored: the callers must go on. */
export function findRemembered(id: AttachmentId, runtime: ChainRuntime): KnownAttachment | undefined {
  return findRecord(id, runtime) ?? findCached(id, runtime);
}

/** The record, if there is a journal and it can be read. */
export function findRecord(
  id: AttachmentId,
  { stateDir, onWarning }: Pick<ChainRuntime, 'stateDir' | 'onWarning'>,
): KnownAttachment | undefined {
  if (stateDir === undefined) return undefined;
  return orTell(onWarning, () => readAttachment({ journals: [stateDir] }, id), UNUSABLE);
}

/**
 * Its entry, whichever runtime made it. Ignores an unusable file.
 * @param unusable error codes that make it so. A step that must go on includes that it cannot be read.
 */
export function findCached(
  id: AttachmentId,
  runtime: ChainRuntime,
  unusable: readonly number[] = UNUSABLE,
): KnownAttachment | undefined {
  return orTell(runtime.onWarning, () => readAttachment({ cacheDir: cacheDirOf(runtime) }, id), unusable);
}

const UNUSABLE: readonly number[] = [ErrorCode.decodingFailure, ErrorCode.ioFailure];

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
  const id = { network: list.name, containerId, ifname };
  const cached = readAttachment({ cacheDir: cacheDirOf(runtime) }, id);
  const result = cached?.result && convertResult(cached.result, list.version, 'cached result');
  return result as ResultOf | undefined;
}

/** The list as it was at ADD. If it is unusable, a warning is given and the caller falls back to its own list. */
export function findConfigOfAdd(
  known: KnownAttachment | undefined,
  runtime: ChainRuntime,
): Conflist | undefined {
  if (!known?.source) return undefined;
  const place = `${known.stateDir === undefined ? 'cached result' : 'record'} "${known.file}"`;
  try {
    const list = parseFrozen(known.source);
    if (list.name === known.network) return list;
    warn(`Cannot use configuration in ${place}: it is for network "${list.name}"`);
  } catch (cause) {
    warn(`Cannot use configuration in ${place}: ${(cause as Error).message}`);
  }
  return undefined;

  function warn(message: string): void {
    runtime.onWarning?.(decodingFailure(message));
  }
}

/** As in the reference: the ADD's arguments if it had any, and always its capability arguments. */
export function withCachedArgs(attachment: Attachment, cached: KnownAttachment | undefined): Attachment {
  if (!cached?.source) return attachment;
  const { containerId, ifname, netns } = attachment;
  const args = cached.args.length ? cached.args : (attachment.args ?? []);
  return { containerId, ifname, netns, args, capabilityArgs: cached.capabilityArgs };
}

export function idOf(list: Conflist, { containerId, ifname }: Attachment): AttachmentId {
  return { network: list.name, containerId, ifname };
}

/** Whether the attachment has been changed, or is being changed, since the first record was read. */
export function isChangedSince(then: KnownAttachment | undefined, now: KnownAttachment | undefined): boolean {
  if (then === undefined || now === undefined) return false;
  const settings = ({ capabilityArgs, source, change }: KnownAttachment) =>
    JSON.stringify([capabilityArgs, source, change]);
  return settings(then) !== settings(now);
}

/** containerd records its loopback as an attachment. */
export const LOOPBACK = 'lo';

/** What is known of an attachment whose namespace cannot be found. */
export interface GoneJudgement {
  readonly why: string;
  /** Whether that proves that its namespace is gone. */
  readonly isSure: boolean;
  readonly isEarlier?: true;
}

/**
 * A missing path is not enough: one of the attachment's devices on the host has to be missing, too, since the kernel deletes a pair
 * of devices with the namespace that one end is in. Undefined if its namespace stands, or nothing says where it was.
 * @param one.devices names of the devices of its result that are on the host
 * @param present names of the devices of the host, asked only if they matter
 */
export function judgeGone(
  one: KnownAttachment & { readonly devices: readonly string[] },
  present: () => ReadonlySet<string>,
  { env }: Pick<ChainRuntime, 'env'>,
): GoneJudgement | undefined {
  const { netns, ifname, devices } = one;
  const past = pastOf(one, env);
  if (past.kind === 'outlived') return { why: past.why ?? '', isSure: true, isEarlier: true };
  if (past.netns() === 'same') return undefined;
  if (ifname === LOOPBACK)
    return { why: `namespace "${netns}" is gone, and a loopback has nothing outside of it`, isSure: true };
  if (devices.length === 0) {
    const why = `namespace "${netns}" is not visible here, and no device on the host shows whether it is gone; if it is, catena del deletes what is left`;
    return { why, isSure: false };
  }
  const missing = devices.find(name => !present().has(name));
  const why =
    missing === undefined
      ? `namespace "${netns}" is not visible here, but no device of the attachment is missing on the host`
      : `namespace "${netns}" and device "${missing}" are gone`;
  return { why, isSure: missing !== undefined };
}
