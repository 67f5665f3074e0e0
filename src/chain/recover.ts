// Who takes down what a dead runner left behind, and when?
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CniError, toCniError } from '../cni/errors.ts';
import { putFile } from '../files/put-file.ts';
import { sweepUnfinished } from '../files/unfinished.ts';
import { bootId } from '../journal/boot.ts';
import { claimRecord, holderOf } from '../journal/claim.ts';
import { listMarked, type Marked, setMark } from '../journal/marks.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { listRecords, readFile, unmark } from '../journal/store.ts';
import type { AttachmentId } from './cache-record.ts';
import { sweepCache } from './result-cache.ts';
import { cacheDirOf, type Runtime } from './runtime.ts';
import { tearDownClaimed } from './tear-down.ts';

/** What became of one attachment that was not settled. */
export interface Recovery extends AttachmentId {
  /** Why it had to be taken down. */
  readonly why: string;
  /** Why it could not be; it is tried again later. */
  readonly error?: CniError;
}

/** How much is recovered at once. */
export interface RecoveryScope {
  readonly network?: string;
  /** All of it, and at once; otherwise a few, so that the verb which does it on the way is not held up for long. */
  readonly all?: boolean;
}

/** On the way: how many, how long until no further one is begun, and how long each link may take. */
const LIMIT = 4;
const BUDGET_MS = 5_000;
const LINK_DEADLINE_MS = 10_000;
/** From one attempt to the next: doubled each time, from the first of these to the second. */
const BACKOFF_MS = { first: 1_000, last: 300_000 } as const;

/**
 * How one attachment is taken down.
 * @returns whether there was a reason to, and nobody else was at it
 */
export type TakeDown = (id: AttachmentId, runtime: Runtime) => Promise<boolean>;

/**
 * Takes down the attachments that are recorded as begun and not ended, whose runner has died; those whose DEL failed, when
 * they are due; and those of an earlier boot. Each with the configuration of its own ADD. Never throws: what could not be
 * done waits in its record.
 * @param how for journals whose records mean something else than the links of a list
 */
export async function recover(
  scope: RecoveryScope,
  runtime: Runtime,
  how: TakeDown = takeDown,
): Promise<Recovery[]> {
  const { stateDir } = runtime;
  if (stateDir === undefined) return [];
  const { onLink: _, onFinish: __, ...quiet } = runtime;
  const onTheWay: Runtime = { ...quiet, deadlineMs: LINK_DEADLINE_MS };
  const until = performance.now() + BUDGET_MS;
  const done: Recovery[] = [];
  try {
    markEarlierBoots(stateDir, runtime, scope.all === true);
    // A verb that is for one network has no time to look through what all of them share.
    if (scope.all || scope.network === undefined) {
      sweepUnfinished(stateDir);
      sweepCache(cacheDirOf(runtime));
    }
    for (const marked of listMarked(stateDir, scope.network)) {
      if (!scope.all && (done.length >= LIMIT || performance.now() > until)) break;
      if (runtime.signal?.aborted) break;
      const recovery = await recoverOne(stateDir, marked, how, scope.all ? runtime : onTheWay, scope.all);
      if (recovery) done.push(recovery);
    }
  } catch (error) {
    runtime.onWarning?.(toCniError(error));
  }
  return done;
}

/** Why an attachment has to be taken down; undefined when it stands, or somebody is at work on it. */
export function findReason(record: AttachmentRecord, env: Runtime['env']): string | undefined {
  if (holderOf(record)) return undefined;
  if (isOfEarlierBoot(record, env)) return 'it is of an earlier boot of the machine';
  const { phase, attempts, lastErrors } = record;
  if (phase === 'adding') return 'its ADD was cut off';
  if (phase === 'deleting') return 'its DEL was cut off';
  if (phase === 'attached') return undefined;
  return `its DEL failed ${attempts === 1 ? 'once' : `${attempts} times`}: ${lastErrors.map(({ msg }) => msg).join('; ')}`;
}

/**
 * Whether nothing of the attachment can be in the kernel any more. Where one of the two boots is not known, it may well be:
 * taking it down would cost a working container its network.
 */
export function isOfEarlierBoot({ boot }: Pick<AttachmentRecord, 'boot'>, env: Runtime['env']): boolean {
  const now = bootId(env);
  return now !== '' && boot !== '' && boot !== now;
}

/**
 * Takes an attachment down that is not settled, with nothing but its record.
 * @returns whether there was a reason to, and nobody else was at it
 * @throws CniError of what failed
 */
export async function takeDown(id: AttachmentId, runtime: Runtime): Promise<boolean> {
  const { stateDir, env } = runtime;
  if (stateDir === undefined) return false;
  const claim = claimRecord(stateDir, id, record => findReason(record, env) !== undefined);
  if (claim === undefined || 'holder' in claim) return false;
  await tearDownClaimed(claim, runtime);
  return true;
}

async function recoverOne(
  stateDir: string,
  marked: Marked,
  how: TakeDown,
  runtime: Runtime,
  now = false,
): Promise<Recovery | undefined> {
  let found: AttachmentRecord | undefined;
  try {
    found = readFile(marked.file);
  } catch (error) {
    runtime.onWarning?.(toCniError(error));
    return undefined;
  }
  const why = found && findReason(found, runtime.env);
  if (found === undefined || why === undefined) {
    unmark(stateDir, marked);
    return undefined;
  }
  if (!now && !isDue(found)) return undefined;
  const { network, containerId, ifname } = found;
  const outcome = { network, containerId, ifname, why };
  // Whoever was cut off may have been writing.
  sweepCache(found.cacheDir);
  try {
    return (await how(found, runtime)) ? outcome : undefined;
  } catch (thrown) {
    const error = toCniError(thrown);
    const text = `Cannot take down interface "${ifname}" of container "${containerId}" of network "${network}" (${why}): ${error.message}`;
    runtime.onWarning?.(new CniError(error.code, text, { cause: thrown }));
    return { ...outcome, error };
  }
}

/** Who tried and died counts as well: what killed him must not kill every verb of the network. */
function isDue({ attempts, lastAttempt, runners }: AttachmentRecord): boolean {
  const tries = attempts + runners.length - (attempts > 0 ? 0 : 1);
  const last = [lastAttempt, runners.at(-1)?.time].flatMap(time =>
    time === undefined ? [] : Date.parse(time),
  );
  if (tries < 1 || last.length === 0) return true;
  const pause = Math.min(BACKOFF_MS.first * 2 ** (tries - 1), BACKOFF_MS.last);
  // A clock that was set back makes no attempt wait for years.
  return !(Math.abs(Date.now() - Math.max(...last)) < pause);
}

/** Once per boot: what an earlier one left is marked, and recovered like everything else that is. */
function markEarlierBoots(stateDir: string, { env, onWarning }: Runtime, onlyLooking: boolean): void {
  const boot = bootId(env);
  if (boot === '' || seen.get(stateDir) === boot) return;
  const stamp = join(stateDir, 'boot');
  if (readIfThere(stamp) !== boot) {
    const { records, damaged } = listRecords(stateDir);
    for (const problem of damaged) onWarning?.(problem);
    for (const record of records) if (isOfEarlierBoot(record, env)) setMark(stateDir, record);
    // A verb notes it also where there is nothing yet: what the first container brings is not the second one's.
    const isThere = records.length || damaged.length || readIfThere(stamp) !== undefined;
    if (isThere || !onlyLooking) writeStamp(stamp, boot);
  }
  seen.set(stateDir, boot);
}

/** State directories that this process has looked through, and in which boot. */
const seen = new Map<string, string>();

/** Only once per boot: what another one left who tried this can be looked for as well. */
function writeStamp(stamp: string, boot: string): void {
  sweepUnfinished(dirname(stamp));
  putFile(stamp, boot, { what: 'note of the boot' });
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
