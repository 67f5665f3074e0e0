// Which attachments outlived their namespace, and how are they deleted when an operator asks for it?

import { renderAttachment } from '../chain/records/cache-record.ts';
import { findConfigOfAdd } from '../chain/records/config-of-add.ts';
import { withRecordedDirs } from '../chain/records/delete-attachment.ts';
import { deleteUnsettled, isOfEarlierBoot } from '../chain/records/recover.ts';
import { findCached } from '../chain/records/remembered-add.ts';
import { deleteNetwork } from '../chain/run/run.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { compareNetns, findNetnsIdentity } from '../journal/netns-identity.ts';
import { pause } from '../wait.ts';
import { attachmentLister, type WatchedAttachment } from './attachments.ts';
import { listDeviceNames } from './sources.ts';

/** What is looked for, and where. */
export interface GoneScope {
  /** Every network unless given. */
  readonly network?: string;
  /** State directories: our runner's first, then that of the delegate runner. */
  readonly journals: readonly string[];
  readonly cacheDir: string;
  /** For this long a namespace must be seen to be gone: a runtime calls DEL after it has removed the namespace. */
  readonly graceMs: number;
  /** Delete nothing, and do not wait. */
  readonly dryRun: boolean;
}

/** What became of an attachment. */
export interface GoneAttachment extends AttachmentId {
  /** `kept`: its path is gone, but nothing proves that its namespace is. `failed`: what is left is deleted by the next attempt. */
  readonly state: 'found' | 'deleted' | 'kept' | 'failed';
  readonly why: string;
  readonly error?: CniError;
}

/**
 * Deletes attachments of any runtime whose namespace is gone, and those of an earlier boot. A path may be visible to others only,
 * so a missing path is not enough: one of the attachment's devices on the host has to be missing, too, since the kernel deletes a
 * pair of devices with the namespace that one end is in.
 */
export async function collectGone(scope: GoneScope, runtime: ChainRuntime): Promise<GoneAttachment[]> {
  const list = attachmentLister(scope.journals, scope.cacheDir);
  const look = () => {
    const devices = listDeviceNames();
    const chosen = list().filter(({ id }) => scope.network === undefined || id.network === scope.network);
    return chosen.flatMap(one => {
      const judged = judgeGone(one, () => devices, runtime);
      return judged === undefined ? [] : [{ one, ...judged }];
    });
  };
  const first = look();
  const report: GoneAttachment[] = [];
  if (!scope.dryRun && first.some(({ isSure, isEarlier }) => isSure && !isEarlier))
    await pause(scope.graceMs);
  const again = scope.dryRun ? first : look();
  const before = new Map(first.map(({ one }) => [one.key, lifeOf(one)]));
  for (const { one, why, isSure } of again) {
    if (before.get(one.key) !== lifeOf(one) || runtime.signal?.aborted) continue;
    if (!isSure) report.push({ ...one.id, state: 'kept', why });
    else if (scope.dryRun) report.push({ ...one.id, state: 'found', why });
    else report.push({ ...one.id, why, ...(await removeGone(one, runtime)) });
  }
  return report;
}

/** containerd records its loopback as an attachment. */
const LOOPBACK = 'lo';

/** What is known of an attachment whose namespace cannot be found. */
export interface GoneJudgement {
  readonly why: string;
  /** Whether that proves that its namespace is gone. */
  readonly isSure: boolean;
  readonly isEarlier?: true;
}

/**
 * Undefined if its namespace stands, or nothing says where it was.
 * @param present names of the devices of the host, asked only if they matter
 */
export function judgeGone(
  { known, recorded, devices }: WatchedAttachment,
  present: () => ReadonlySet<string>,
  { env }: Pick<ChainRuntime, 'env'>,
): GoneJudgement | undefined {
  if (recorded && isOfEarlierBoot(recorded.record, env))
    return { why: 'it is from an earlier boot of the machine', isSure: true, isEarlier: true };
  if (!isPathGone(known.netns, recorded)) return undefined;
  if (known.ifname === LOOPBACK)
    return {
      why: `namespace "${known.netns}" is gone, and a loopback has nothing outside of it`,
      isSure: true,
    };
  const missing = devices.find(name => !present().has(name));
  if (missing !== undefined)
    return { why: `namespace "${known.netns}" and device "${missing}" are gone`, isSure: true };
  return {
    why: `namespace "${known.netns}" is not visible here, but no device of the attachment is missing on the host`,
    isSure: false,
  };
}

function isPathGone(netns: string, recorded: WatchedAttachment['recorded']): boolean {
  if (netns === '') return false;
  return recorded ? compareNetns(netns, recorded.record) !== 'same' : findNetnsIdentity(netns) === undefined;
}

/** Text that differs between an attachment and a later one of the same name. */
export function lifeOf({ known, recorded }: WatchedAttachment): string {
  return `${recorded?.record.runner.op ?? ''} ${renderAttachment(known)}`;
}

/** Deletes it, unless it has been made again or another process works on it. Never throws. */
export async function removeGone(
  one: WatchedAttachment,
  runtime: ChainRuntime,
): Promise<Omit<Partial<GoneAttachment>, keyof AttachmentId> & Pick<GoneAttachment, 'state'>> {
  const { id, known, recorded } = one;
  const own = recorded
    ? {
        ...withRecordedDirs(runtime, recorded.record),
        stateDir: recorded.stateDir,
        cacheDir: recorded.record.cacheDir,
      }
    : runtime;
  try {
    if (recorded && isOfEarlierBoot(recorded.record, runtime.env)) {
      const isDeleted = await deleteUnsettled(id, own);
      if (isDeleted) return { state: 'deleted' };
      return { state: 'kept', why: 'it has been attached again since, or another process works on it' };
    }
    const list = findConfigOfAdd(known, own);
    if (list === undefined)
      throw new CniError(
        ErrorCode.decodingFailure,
        'Cannot delete it: the configuration of its ADD cannot be used; delete it with catena del --file <conflist>',
      );
    await deleteNetwork(list, known, own, record => {
      if (record?.runner.op !== recorded?.record.runner.op) return false;
      if (!isPathGone(known.netns, recorded)) return false;
      const cached = recorded ? undefined : findCached(id, own);
      return (
        recorded !== undefined ||
        (cached !== undefined && renderAttachment(cached) === renderAttachment(known))
      );
    });
    return { state: 'deleted' };
  } catch (error) {
    return { state: 'failed', error: toCniError(error) };
  }
}
