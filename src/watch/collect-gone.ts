// Which attachments outlived their namespace, and how are they deleted when an operator asks for it?

import { lifeOf, pastOf } from '../attachments/store.ts';
import { findConfigOfAdd, type GoneJudgement, judgeGone } from '../chain/records/known-add.ts';
import { deleteUnsettled } from '../chain/records/recover.ts';
import { deleteNetwork } from '../chain/run/run.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { INTERRUPTED, visitAll } from '../chain/run/visits.ts';
import { type AttachmentId, toId } from '../cni/attachment.ts';
import { type CniError, decodingFailure, toCniError } from '../cni/errors.ts';
import { Tables } from '../netlink/tables.ts';
import { pause } from '../wait.ts';
import { runtimeFor, type WatchedAttachment } from './attachments.ts';

interface GoneScope {
  /** Every network unless given. */
  readonly network?: string | undefined;
  /** For this long a namespace must be seen to be gone: a runtime calls DEL after it has removed the namespace. */
  readonly graceMs: number;
  /** Delete nothing, and do not wait. */
  readonly dryRun: boolean;
}

export interface GoneAttachment extends AttachmentId {
  /** `kept`: its path is gone, but nothing proves that its namespace is, or `why` says what else. `failed`: what is left is deleted by the next attempt. */
  readonly state: 'found' | 'deleted' | 'kept' | 'failed';
  readonly why: string;
  readonly error?: CniError;
}

/** An attachment whose namespace cannot be found, and what that proves. */
export interface Gone extends GoneJudgement {
  readonly one: WatchedAttachment;
  /** Text that differs between it and a later one of the same name. */
  readonly life: string;
  /** Deletes it, unless it has been made again or another process works on it. Never throws. */
  mend(runtime: ChainRuntime): Promise<GoneOutcome>;
}

/** What came of a deletion; `why` only if there is more to say than why it was attempted. */
export type GoneOutcome = Pick<GoneAttachment, 'state' | 'error'> & { readonly why?: string };

/**
 * Deletes attachments of any runtime whose namespace is gone, and those of an earlier boot.
 * @param list reads which there are
 */
export async function collectGone(
  list: () => readonly WatchedAttachment[],
  { network, graceMs, dryRun }: GoneScope,
  runtime: ChainRuntime,
): Promise<GoneAttachment[]> {
  const isWanted = (one: WatchedAttachment) => network === undefined || one.network === network;
  const look = () => findGone(list().filter(isWanted), runtime);
  const first = look();
  if (!dryRun && first.some(({ isSure, isEarlier }) => isSure && !isEarlier)) await pause(graceMs);
  const before = new Map(first.map(({ one, life }) => [one.key, life]));
  const still = (dryRun ? first : look()).filter(({ one, life }) => before.get(one.key) === life);
  const limits = {
    groupOf: ({ one }: Gone) => one.network,
    signal: runtime.signal,
    instead: ({ one }: Gone): GoneAttachment => ({ ...toId(one), why: INTERRUPTED, state: 'kept' }),
  };
  return await visitAll(still, limits, async (gone): Promise<GoneAttachment> => {
    const found = { ...toId(gone.one), why: gone.why };
    if (!gone.isSure) return { ...found, state: 'kept' };
    return dryRun ? { ...found, state: 'found' } : { ...found, ...(await gone.mend(runtime)) };
  });
}

/** @param present names of the devices of the host */
export function findGone(
  attachments: readonly WatchedAttachment[],
  runtime: Pick<ChainRuntime, 'env'>,
  present: () => ReadonlySet<string> = deviceNames(),
): Gone[] {
  return attachments.flatMap(one => {
    const judged = judgeGone(one, present, runtime);
    if (judged === undefined) return [];
    return [{ one, ...judged, life: lifeOf(one), mend: (runtime: ChainRuntime) => remove(one, runtime) }];
  });
}

/** Names of the devices of the host, read once, when they are first asked for. */
export function deviceNames(): () => ReadonlySet<string> {
  let names: ReadonlySet<string> | undefined;
  return () => (names ??= new Set(new Tables().links.map(({ name }) => name)));
}

const NO_LONGER: GoneOutcome = {
  state: 'kept',
  why: 'it has been attached again since, or another process works on it',
};

async function remove(one: WatchedAttachment, runtime: ChainRuntime): Promise<GoneOutcome> {
  const own = runtimeFor(one, runtime);
  try {
    const past = pastOf(one, runtime.env);
    if (past.kind === 'outlived') {
      return (await deleteUnsettled(one, own)) ? { state: 'deleted' } : NO_LONGER;
    }
    const list = findConfigOfAdd(one, own);
    if (list === undefined)
      throw decodingFailure(
        'Cannot delete it: the configuration of its ADD cannot be used; delete it with catena del --file <conflist>',
      );
    let isStill = false;
    await deleteNetwork(list, one, own, life => {
      isStill = life === lifeOf(one) && past.netns() !== 'same';
      return isStill;
    });
    return isStill ? { state: 'deleted' } : NO_LONGER;
  } catch (error) {
    return { state: 'failed', error: toCniError(error) };
  }
}
