// What is to be done about an attachment before anything else?
import { EARLIER_BOOT, isOfEarlierBoot } from './boot.ts';
import { ELSEWHERE, isElsewhere } from './elsewhere.ts';
import { compareNetns } from './netns-identity.ts';
import type { AttachmentRecord } from './record.ts';
import { holderOf } from './runner.ts';

type Environment = Readonly<Record<string, string | undefined>> | undefined;

/** What operations, or a reboot, have left of an attachment. */
export type Past =
  /** Its ADD succeeded, and nothing has begun since; or plugins were about to change it, which is undone or finished. */
  | { readonly kind: 'settled' | 'changing'; readonly why?: undefined }
  /** It is to be deleted: its ADD or DEL was cut off, its DEL has failed, or it is of an earlier boot. Human-readable reason. */
  | { readonly kind: 'adding' | 'deleting' | 'left' | 'outlived'; readonly why: string }
  /** It is up to another network namespace of this machine. */
  | { readonly kind: 'elsewhere'; readonly why: string };

/** @param record as it was read; a process may be at work on it */
export function pastOf(record: AttachmentRecord, env: Environment): Past {
  const { phase, attempts, lastErrors, foreign, change } = record;
  if (isElsewhere(record, env)) return { kind: 'elsewhere', why: ELSEWHERE };
  const isAttached = phase === 'attached';
  // Its runtime deletes an attachment of its own, also after a reboot.
  if (isOfEarlierBoot(record, env) && !(foreign && isAttached))
    return { kind: 'outlived', why: EARLIER_BOOT };
  if (isAttached) return { kind: change === undefined ? 'settled' : 'changing' };
  if (phase === 'adding') return { kind: phase, why: 'its ADD was interrupted' };
  if (phase === 'deleting') return { kind: phase, why: 'its DEL was interrupted' };
  const times = attempts === 1 ? 'once' : `${attempts} times`;
  return { kind: 'left', why: `its DEL failed ${times}: ${lastErrors.map(({ msg }) => msg).join('; ')}` };
}

/** Why an attachment has to be deleted; undefined if it is settled, a process is at work on it, or that is up to another network namespace. */
export function findReason(record: AttachmentRecord, env: Environment): string | undefined {
  const { kind, why } = pastOf(record, env);
  return kind === 'elsewhere' || holderOf(record) ? undefined : why;
}

/** Whether its ADD succeeded, and no DEL has begun. It may have outlived its namespace. */
export function isStanding({ phase }: Pick<AttachmentRecord, 'phase'>): boolean {
  return phase === 'attached';
}

/**
 * Where the namespace of its ADD is: `same` if a path leads to it, `gone` if it does not exist, as after a reboot, `other` if the path leads
 * to another one.
 */
export function findNetns(
  record: AttachmentRecord,
  env: Environment,
  path = record.netns,
): 'same' | 'gone' | 'other' {
  return isOfEarlierBoot(record, env) ? 'gone' : compareNetns(path, record);
}
