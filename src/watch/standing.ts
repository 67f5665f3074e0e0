// What is known of an attachment's condition, when may it be repaired again, and when is it given up?

/** Pause after a repair that did not last or did not succeed; doubled with each further one. */
const FIRST_PAUSE_MS = 1_000;
/** So many repairs that did not last are enough: another program removes what they put back. */
const MAX_REPAIRS = 4;
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
  readonly repairedAt: number;
  /** What the last repair put right. */
  readonly repaired?: string;
}

/** What is to be said about a change of the condition. */
export type News = 'drifted' | 'sound again' | undefined;

/** The standing after a CHECK. @param problem undefined: it was sound */
export function afterCheck(
  before: Standing | undefined,
  problem: string | undefined,
  now: number,
): { readonly standing: Standing; readonly news: News } {
  // Other damage than that which was repaired is no sign that repairs do not last, unless it follows at once.
  const isOther = problem !== undefined && before?.state === 'sound' && problem !== before.repaired;
  const isCalm = before === undefined || now - before.repairedAt > (isOther ? OTHER_MS : CALM_MS);
  const past = isCalm
    ? { repairs: 0, repairedAt: 0 }
    : { repairs: before.repairs, repairedAt: before.repairedAt, ...repairedOf(before) };
  if (problem === undefined) {
    const wasSound = before === undefined || before.state === 'sound';
    if (wasSound)
      return { standing: { ...past, state: 'sound', since: before?.since ?? now }, news: undefined };
    // It was put right by others, so what repairs could not do counts no longer.
    return { standing: { state: 'sound', since: now, repairs: 0, repairedAt: 0 }, news: 'sound again' };
  }
  if (before?.state === 'given up') {
    // What is missing may differ from moment to moment while another program removes it.
    const isSame = before.problem === problem || now - before.since < GIVEN_UP_MS;
    if (isSame) return { standing: before, news: undefined };
    return {
      standing: { state: 'drifted', problem, since: now, repairs: 0, repairedAt: 0 },
      news: 'drifted',
    };
  }
  if (before?.state === 'drifted') return { standing: { ...before, ...past, problem }, news: undefined };
  // A drift that comes back after a repair has been reported.
  const news = past.repairs === 0 ? 'drifted' : undefined;
  return { standing: { state: 'drifted', problem, since: now, ...past }, news };
}

/** How long until it may be repaired, in milliseconds; `never` if it is given up now. */
export function pauseBefore({ state, repairs, repairedAt }: Standing, now: number): number | 'never' {
  if (state === 'given up' || repairs >= MAX_REPAIRS) return 'never';
  if (repairs === 0) return 0;
  return Math.max(0, repairedAt + FIRST_PAUSE_MS * 2 ** (repairs - 1) - now);
}

/** The standing after a repair. @param problem what it could not put back; undefined: CHECK passes */
export function afterRepair(before: Standing, problem: string | undefined, now: number): Standing {
  const past = { repairs: before.repairs + 1, repairedAt: now };
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
