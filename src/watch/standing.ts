// What is known of an attachment's condition, when may it be repaired again, and when is it given up?

/** Pause after a repair that did not last or did not succeed; doubled with each further one. */
const FIRST_PAUSE_MS = 1_000;
/** Damage found so soon after a repair was done by a program that undoes repairs. Operators who reload a firewall take longer. */
const AT_ONCE_MS = 2_000;
/** So many repairs that were undone at once, or that failed, are enough. */
const MAX_UNDONE = 4;
/** More repairs than this, each forgotten after {@link CALM_MS}, are followed by pauses and no longer reported one by one. */
const OFTEN = 6;
const LONGEST_PAUSE_MS = 60_000;
/** So many repairs are enough even if each lasted a while: another program removes regularly what they put back. */
const MAX_REPAIRS = 20;
/** A repair that has lasted this long is forgotten. */
const CALM_MS = 10 * 60_000;
/** It stays given up for this long, whatever CHECK reports. */
const GIVEN_UP_MS = 60_000;
/** Other damage so soon after a repair counts as the same: what is missing first differs while another program removes it. */
const OTHER_MS = 1_000;

/** The condition of an attachment. All times are milliseconds of one clock. */
export interface Standing {
  readonly state: 'sound' | 'drifted' | 'given up';
  /** What CHECK reports. */
  readonly problem?: string;
  /** Since when it is in this state. */
  readonly since: number;
  /** Repairs since it was last sound for long. */
  readonly repairs: number;
  /** The last of them, as many as were undone at once or failed. */
  readonly undone: number;
  readonly repairedAt: number;
  /** What the last repair put right. */
  readonly repaired?: string;
}

/** What is to be said about a change of the condition. */
export type News = 'drifted' | 'damaged often' | 'sound again' | undefined;

/** The standing after a CHECK. @param problem undefined: it was sound */
export function afterCheck(
  before: Standing | undefined,
  problem: string | undefined,
  now: number,
): { readonly standing: Standing; readonly news: News } {
  // Other damage than that which was repaired is no sign that repairs do not last, unless it follows at once.
  const isOther = problem !== undefined && before?.state === 'sound' && problem !== before.repaired;
  const age = now - (before?.repairedAt ?? 0);
  const isCalm = before === undefined || age > (isOther ? OTHER_MS : CALM_MS);
  const hasLasted = before?.state === 'sound' && age > AT_ONCE_MS;
  const past = isCalm
    ? NEVER_REPAIRED
    : {
        repairs: before.repairs,
        undone: hasLasted ? 0 : before.undone,
        repairedAt: before.repairedAt,
        ...repairedOf(before),
      };
  if (problem === undefined) {
    const wasSound = before === undefined || before.state === 'sound';
    if (wasSound)
      return { standing: { ...past, state: 'sound', since: before?.since ?? now }, news: undefined };
    // It was put right by others, so what repairs could not do counts no longer.
    return { standing: { state: 'sound', since: now, ...NEVER_REPAIRED }, news: 'sound again' };
  }
  if (before?.state === 'given up') {
    // What is missing may differ from moment to moment while another program removes it.
    const isSame = before.problem === problem || now - before.since < GIVEN_UP_MS;
    if (isSame) return { standing: before, news: undefined };
    return {
      standing: { state: 'drifted', problem, since: now, ...NEVER_REPAIRED },
      news: 'drifted',
    };
  }
  if (before?.state === 'drifted') return { standing: { ...before, ...past, problem }, news: undefined };
  return { standing: { state: 'drifted', problem, since: now, ...past }, news: newsOf(past) };
}

const NEVER_REPAIRED = { repairs: 0, undone: 0, repairedAt: 0 };

/** A drift that comes back at once after a repair has been reported. */
function newsOf({ repairs, undone }: Pick<Standing, 'repairs' | 'undone'>): News {
  if (undone > 0 || repairs > OFTEN) return undefined;
  return repairs === OFTEN ? 'damaged often' : 'drifted';
}

/** Whether a repair is reported: not one that follows another at once, or many others. */
export function isReported({ repairs, undone }: Pick<Standing, 'repairs' | 'undone'>): boolean {
  return undone === 0 && repairs <= OFTEN;
}

/** How long until it may be repaired, in milliseconds; `never` if it is given up now. */
export function pauseBefore(standing: Standing, now: number): number | 'never' {
  const { state, repairs, undone, repairedAt } = standing;
  if (state === 'given up' || undone >= MAX_UNDONE || repairs >= MAX_REPAIRS) return 'never';
  const [again, often] = [pauseAfter(undone), pauseAfter(repairs - OFTEN)];
  const pause = Math.max(again, Math.min(often, LONGEST_PAUSE_MS));
  return pause === 0 ? 0 : Math.max(0, repairedAt + pause - now);
}

/** 0, 1, 2, 4, … seconds */
function pauseAfter(count: number): number {
  return count <= 0 ? 0 : FIRST_PAUSE_MS * 2 ** (count - 1);
}

/** The standing after a repair. @param problem what it could not put back; undefined: CHECK passes */
export function afterRepair(before: Standing, problem: string | undefined, now: number): Standing {
  const past = { repairs: before.repairs + 1, undone: before.undone + 1, repairedAt: now };
  if (problem === undefined)
    return { state: 'sound', since: now, ...past, ...repairedOf({ repaired: before.problem }) };
  return { ...before, problem, ...past };
}

/** It is left alone until its condition changes. */
export function giveUp(before: Standing, now: number): Standing {
  return { ...before, state: 'given up', since: now };
}

function repairedOf({ repaired }: { readonly repaired?: string | undefined }): { repaired?: string } {
  return repaired === undefined ? {} : { repaired };
}
