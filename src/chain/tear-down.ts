// How is an attachment taken down: by DEL, or after whoever worked on it has died?
import { CniError, ErrorCode } from '../cni/errors.ts';
import { type Claim, claimRecord } from '../journal/claim.ts';
import { lastBegun } from '../journal/lines.ts';
import { compareNetns } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import type { Runner } from '../journal/runner.ts';
import { dropRecord } from '../journal/store.ts';
import { findStragglers, wasCutOff } from '../journal/stragglers.ts';
import { toRecorded } from './add-record.ts';
import type { AttachmentId } from './cache-record.ts';
import type { Conflist } from './conflist.ts';
import { findFrozen, idOf, withCachedArgs } from './frozen.ts';
import { chooseKnown, findCached, findRecord, toKnown } from './known.ts';
import { joinErrors } from './link-errors.ts';
import { removeAttachment, sweepCache } from './result-cache.ts';
import { type Attachment, cacheDirOf, type Runtime } from './runtime.ts';
import { undoLinks } from './undo.ts';

/** Longest wait for another process that works on the attachment. */
const WAIT_MS = 30_000;
const LOOK_AGAIN_MS = 50;
/** Longest wait for links whose runner has died. */
const STRAGGLERS_MS = 5_000;

/**
 * DEL of every link, last first, with the configuration, arguments and result of the ADD where they are known. Record
 * and cache forget the attachment when all have succeeded; what failed waits in the record for its next attempt.
 * @throws CniError of the link that failed, or one error that joins several; 11 while another process works on it
 */
export async function tearDown(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  const id = idOf(list, attachment);
  const claim = await winClaim(id, runtime);
  await underClaim(id, claim, runtime, async () => {
    // A record that cannot be written to, as on a full disk, can still be read. If not, it has been said.
    const { onWarning: _, ...quiet } = runtime;
    const found = claim?.record ?? findRecord(id, quiet);
    if (found) await outwaitStragglers(found, runtime);
    const known = chooseKnown(found, findCached(id, runtime));
    const frozen = findFrozen(known, runtime) ?? list;
    // Where somebody else has made the attachment anew, the record knows nothing of its namespace.
    const record = known?.file === undefined ? undefined : found;
    const asAdded = withCachedArgs(withOwnNetns(attachment, record, runtime), known);
    return undoLinks(frozen, frozen.plugins.length - 1, asAdded, runtime, known?.result);
  });
}

/**
 * The same with nothing but the record that was claimed: DEL of the links that may have begun.
 * @throws CniError as tearDown(), 6 when the record's configuration cannot be used
 */
export async function tearDownClaimed(claim: Claim, runtime: Runtime): Promise<void> {
  const { record } = claim;
  const { network, containerId, ifname } = record;
  const reaching = { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir };
  await underClaim({ network, containerId, ifname }, claim, reaching, async () => {
    await outwaitStragglers(record, reaching);
    const known = toKnown(record);
    const frozen = findFrozen(known, reaching);
    if (frozen === undefined) {
      throw new CniError(
        ErrorCode.decodingFailure,
        `Cannot take down interface "${ifname}" of container "${containerId}": the configuration in "${record.file}" cannot be used; DEL with the network's own configuration`,
      );
    }
    const { netns, args, capabilityArgs } = record;
    const attachment = withOwnNetns({ containerId, ifname, netns, args, capabilityArgs }, record, reaching);
    return undoLinks(frozen, lastBegun(record, frozen.plugins.length), attachment, reaching, known.result);
  });
}

/**
 * The right to take the attachment down; waits while another process works on it. Undefined when there is no record, or
 * none that can be used: DEL must not be kept from its work by it. Undefined as well when it is not `wanted` any more.
 * @throws CniError 11 when it has waited long enough; with `wanted`, 5 when the record cannot be written to
 */
export async function winClaim(
  id: AttachmentId,
  runtime: Runtime,
  wanted?: Wanted,
): Promise<Claim | undefined> {
  const wait = patience(id, runtime);
  for (;;) {
    const claim = tryClaim(id, runtime, wanted);
    if (claim === undefined || !('holder' in claim)) return claim;
    await wait(claim.holder);
  }
}

/**
 * Waits for whoever works on an attachment: each call a moment, together as long as is worth it.
 * @returns what throws CniError 11 when that is over
 */
export function patience(id: AttachmentId, { signal }: Runtime): (holder: Runner) => Promise<void> {
  const until = performance.now() + WAIT_MS;
  return async ({ pid, time }) => {
    if (performance.now() > until || signal?.aborted) {
      throw new CniError(
        ErrorCode.tryAgainLater,
        `Cannot work on interface "${id.ifname}" of container "${id.containerId}" of network "${id.network}": process ${pid} has been working on it since ${time}`,
      );
    }
    await aMoment();
  };
}

/** A path that leads to another namespace by now would have links delete what is somebody else's. */
function withOwnNetns(
  attachment: Attachment,
  record: AttachmentRecord | undefined,
  { onWarning }: Pick<Runtime, 'onWarning'>,
): Attachment {
  const { netns, containerId } = attachment;
  if (netns === '' || record === undefined) return attachment;
  if (compareNetns(netns, record.netnsIdentity) !== 'other') return attachment;
  onWarning?.(
    new CniError(
      ErrorCode.invalidNetns,
      `Cannot use "${netns}" as namespace of container "${containerId}": it is not the one of its ADD any more; it counts as gone`,
    ),
  );
  return { ...attachment, netns: '' };
}

/** Directories in which the ADD found its links, after those of the caller. */
export function withRecordedDirs(runtime: Runtime, { pluginDirs }: AttachmentRecord): Runtime {
  const more = pluginDirs.filter(dir => !runtime.pluginDirs.includes(dir));
  return more.length ? { ...runtime, pluginDirs: [...runtime.pluginDirs, ...more] } : runtime;
}

/**
 * What a link makes after its DEL would be nobody's. Where a runner has died, what it left half written goes as well.
 */
async function outwaitStragglers(record: AttachmentRecord, runtime: Runtime): Promise<void> {
  const until = performance.now() + STRAGGLERS_MS;
  for (;;) {
    const [pid] = findStragglers(record);
    if (pid === undefined) break;
    if (performance.now() > until) {
      throw new CniError(
        ErrorCode.tryAgainLater,
        `Cannot take down interface "${record.ifname}" of container "${record.containerId}": process ${pid}, a link of whoever died, still works on it`,
      );
    }
    await aMoment();
  }
  if (wasCutOff(record)) sweepCache(cacheDirOf(runtime));
}

/** node:timers/promises would be one more module to load for every chain. */
function aMoment(): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, LOOK_AGAIN_MS));
}

/** @param work returns what went wrong */
async function underClaim(
  id: AttachmentId,
  claim: Claim | undefined,
  runtime: Runtime,
  work: () => Promise<unknown[]>,
): Promise<void> {
  let errors: readonly unknown[];
  try {
    errors = await work();
    if (!errors.length) removeAttachment(cacheDirOf(runtime), id);
  } catch (error) {
    errors = [error];
  }
  if (!errors.length) {
    if (claim) claim.drop();
    // One that nobody can read is of no more use either.
    else if (runtime.stateDir !== undefined) dropRecord(runtime.stateDir, id);
    return;
  }
  try {
    claim?.fail(errors.map(toRecorded));
  } catch (error) {
    errors = [...errors, error];
  }
  throw joinErrors(
    `Cannot delete interface "${id.ifname}" of container "${id.containerId}" from network "${id.network}"`,
    errors,
  );
}

type Wanted = (record: AttachmentRecord) => boolean;

function tryClaim(
  id: AttachmentId,
  { stateDir, onWarning }: Runtime,
  wanted?: Wanted,
): ReturnType<typeof claimRecord> {
  if (stateDir === undefined) return undefined;
  try {
    return claimRecord(stateDir, id, wanted);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    // Whoever wants no more than a part of what DEL does must not be told that there is nothing.
    if (wanted && error.code === ErrorCode.ioFailure) throw error;
    onWarning?.(error);
    return undefined;
  }
}
