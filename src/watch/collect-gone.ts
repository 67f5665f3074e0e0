// Which attachments outlived their namespace, and how are they deleted when an operator asks for it?

import { findConfigOfAdd } from '../chain/records/config-of-add.ts';
import { withRecordedDirs } from '../chain/records/delete-attachment.ts';
import { type GoneJudgement, isNamespaceGone, judgeGone } from '../chain/records/gone.ts';
import { deleteUnsettled } from '../chain/records/recover.ts';
import { findCached } from '../chain/records/remembered-add.ts';
import { deleteNetwork } from '../chain/run/run.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { isOfEarlierBoot } from '../journal/boot.ts';
import { renderAttachment } from '../journal/entry.ts';
import { Tables } from '../netlink/tables.ts';
import { pause } from '../wait.ts';
import type { WatchedAttachment } from './attachments.ts';
import { listAll } from './check-all.ts';

/** What is looked for. */
export interface GoneScope {
  /** Every network unless given. */
  readonly network?: string | undefined;
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

/** Deletes attachments of any runtime whose namespace is gone, and those of an earlier boot. */
export async function collectGone(scope: GoneScope, runtime: ChainRuntime): Promise<GoneAttachment[]> {
  const { network } = scope;
  const look = () =>
    findGone(
      listAll(runtime).filter(({ id }) => network === undefined || id.network === network),
      runtime,
    );
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

/** Those whose namespace cannot be found, with what that proves. */
export function findGone(
  attachments: readonly WatchedAttachment[],
  runtime: Pick<ChainRuntime, 'env'>,
): (GoneJudgement & { readonly one: WatchedAttachment })[] {
  let names: ReadonlySet<string> | undefined;
  const present = () => (names ??= new Set(new Tables().links.map(({ name }) => name)));
  return attachments.flatMap(one => {
    const judged = judgeGone({ ...judgedOf(one), devices: one.devices }, present, runtime);
    return judged === undefined ? [] : [{ one, ...judged }];
  });
}

function judgedOf({ known, recorded }: WatchedAttachment) {
  return { known, record: recorded?.record };
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
      if (!isNamespaceGone(judgedOf(one))) return false;
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
