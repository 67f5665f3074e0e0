// What happens at a visit to an attachment: it is checked, repaired if that is allowed, and reported?
import type { ChainRuntime } from '../chain/run/runtime.ts';
import type { Rest } from '../chain/run/visits.ts';
import { toId } from '../cni/attachment.ts';
import { defined } from '../cni/json.ts';
import type { LogFields, LogLevel } from '../log.ts';
import type { WatchedAttachment } from './attachments.ts';
import { commandsFor, type Damage, examine, type Repaired, repairCommand } from './examine.ts';
import type { Drift, Policy, WatchState } from './settings.ts';

/** What an operator should know of an attachment. */
export type Act = 'drifted' | 'damaged often' | 'repaired' | 'given up' | 'sound again' | 'deleted';

export interface CaretakerEvents {
  log(level: LogLevel, message: string, fields?: LogFields): void;
  /** What is logged about an attachment, for others than readers of the log. Damage that is repaired is told once it is. */
  acted(act: Act, attachment: WatchedAttachment, problem: string): void;
  /** Does a repair, or a deletion, as a request of its own, which is traced. */
  traced<Done>(
    verb: 'REPAIR' | 'DEL',
    attachment: WatchedAttachment,
    runtime: ChainRuntime,
    work: (runtime: ChainRuntime) => Promise<Done>,
    /** @returns undefined: it succeeded */
    problemOf: (done: Done) => string | undefined,
  ): Promise<Done>;
}

/** A process attaches, changes or detaches it; or its DEL has begun, after which nothing has to be looked at. */
export type Work = 'in progress' | 'being deleted';

/** Pause before a look at what a process has worked on. */
const WORK_MS = 500;

interface CaretakerContext {
  find(key: string): WatchedAttachment | undefined;
  policyOf(one: WatchedAttachment): Policy;
  /** What is being done to it, as far as that can be told without a look at it. */
  workOn(one: WatchedAttachment): Work | undefined;
  /** What was listed may no longer be what its file says. */
  doubt(one: WatchedAttachment): void;
  /** Asks for another visit. */
  again(key: string, afterMs: number): void;
}

type Parts = CaretakerEvents & { readonly runtime: ChainRuntime };

/** Visits attachments, and knows the condition of each. */
export class Caretaker {
  readonly #parts: Parts;
  readonly #context: CaretakerContext;
  readonly #runtime: ChainRuntime;
  readonly #conditions = new Map<string, Condition>();
  readonly #checked = new Map<string, number>();
  /** Until when those are left alone whose CHECK hung. */
  readonly #hung = new Map<string, number>();
  readonly #counts = { checks: {} as Record<string, number>, repairs: {} as Record<string, number> };
  /** Those that are visited again when the work on them may have ended. */
  readonly #postponed = new Set<string>();
  #lastCheck: string | undefined;
  #found = 0;

  constructor(parts: Parts, context: CaretakerContext) {
    this.#parts = parts;
    this.#context = context;
    const { onPlugin: _, onWarning: __, onFinish: ___, ...quiet } = parts.runtime;
    this.#runtime = quiet;
  }

  /** How many visits have found something that is not sound. */
  get found(): number {
    return this.#found;
  }

  checkedAt(key: string): number | undefined {
    return this.#checked.get(key);
  }

  get state(): Pick<WatchState, 'drifted' | 'givenUp' | 'lastCheck' | 'checks' | 'repairs'> {
    const those = (state: Condition['state']): Drift[] =>
      [...this.#conditions].flatMap(([key, condition]) => {
        const one = this.#context.find(key);
        if (one === undefined || condition.state !== state) return [];
        return { ...toId(one), problem: condition.problem ?? '', since: isoOf(condition.since) };
      });
    return {
      ...defined({ lastCheck: this.#lastCheck }),
      drifted: those('drifted'),
      givenUp: those('given up'),
      ...this.#counts,
    };
  }

  /** Forgets attachments that no longer exist. */
  forgetAllBut(attachments: ReadonlySet<string>): void {
    for (const known of [this.#conditions, this.#checked, this.#hung])
      for (const key of known.keys()) if (!attachments.has(key)) known.delete(key);
  }

  #postpone(key: string): void {
    if (this.#postponed.has(key)) return;
    this.#postponed.add(key);
    this.#context.again(key, WORK_MS);
  }

  /** The configuration has changed: what was given up is tried again. */
  reconsider(isConcerned: (key: string) => boolean): void {
    for (const [key, condition] of this.#conditions)
      if (condition.state === 'given up' && isConcerned(key))
        this.#conditions.set(key, { ...condition, state: 'drifted', repairs: 0, undone: 0, repairedAt: 0 });
  }

  async visit(key: string, rest: Rest): Promise<void> {
    // Also of one that is gone: no later visit would.
    this.#postponed.delete(key);
    const one = this.#context.find(key);
    if (one === undefined || one.isCheckedInParts) return;
    const policy = this.#context.policyOf(one);
    if (policy === 'off' || performance.now() < (this.#hung.get(key) ?? 0)) return;
    const work = this.#context.workOn(one);
    if (work === 'in progress') this.#postpone(key);
    if (work) return;
    let isSuspect = false;
    const outcome = await examine(one, this.#runtime, ms => {
      isSuspect = true;
      this.#found += 1;
      return rest(ms);
    });
    if (outcome.state === 'passed over' || outcome.state === 'gone') this.#context.doubt(one);
    if (outcome.state === 'passed over') return;
    this.#lastCheck = new Date().toISOString();
    this.#checked.set(key, performance.now());
    count(this.#counts.checks, outcome.state);
    if (outcome.state === 'unknown' && outcome.hung) {
      this.#hung.set(key, performance.now() + HUNG_MS);
      this.#tell('hung', one, outcome.why);
      return;
    }
    if (outcome.state === 'gone' || outcome.state === 'unknown') {
      this.#conditions.delete(key);
      return;
    }
    const damage = outcome.state === 'drifted' ? outcome : undefined;
    const problem = damage?.problem;
    if (problem !== undefined && !isSuspect) this.#found += 1;
    const before = this.#conditions.get(key);
    const { condition, news } = afterCheck(before, problem, performance.now());
    this.#conditions.set(key, condition);
    const told = problem ?? before?.problem ?? '';
    // What is repaired is told to others once it is.
    if (news === 'drifted' && policy === 'repair') this.#tell(news, one, told);
    else if (news === 'drifted') this.#announce(news, one, told, repairCommand(one));
    else if (news) this.#announce(news, one, told);
    if (damage && policy === 'repair') await this.#repair(one, condition, damage);
  }

  async #repair(one: WatchedAttachment, condition: Condition, { problem, mend }: Damage): Promise<void> {
    const { key } = one;
    const pause = pauseBefore(condition, performance.now());
    if (pause === 'never') {
      if (condition.state === 'given up') return;
      this.#conditions.set(key, giveUp(condition, performance.now()));
      count(this.#counts.repairs, 'given up');
      this.#announce('given up', one, problem, commandsFor(one));
      return;
    }
    if (pause > 0) {
      this.#context.again(key, pause);
      return;
    }
    const { state, problem: left } = await this.#parts.traced('REPAIR', one, this.#runtime, mend, problemOf);
    if (state === undefined) return;
    const remaining = state === 'broken' ? (left ?? problem) : undefined;
    count(this.#counts.repairs, remaining === undefined ? 'repaired' : 'failed');
    const after = afterRepair(condition, remaining, performance.now());
    this.#conditions.set(key, after);
    if (remaining !== undefined) this.#context.again(key, Number(pauseBefore(after, performance.now())) || 0);
    // Not one that follows another at once, or many others.
    else if (condition.undone === 0 && condition.repairs <= OFTEN) this.#announce('repaired', one, problem);
  }

  /** In the log, and to others. */
  #announce(what: Exclude<Told, 'hung'>, one: WatchedAttachment, problem: string, advice?: string): void {
    this.#tell(what, one, problem, advice);
    this.#parts.acted(what, one, problem);
  }

  #tell(what: Told, one: WatchedAttachment, problem: string, advice?: string): void {
    const isDamage = ['drifted', 'damaged often', 'hung'].includes(what);
    const level = what === 'given up' ? 'error' : isDamage ? 'warn' : 'info';
    this.#parts.log(level, MESSAGES[what], { ...fieldsOf(one), problem, ...defined({ advice }) });
  }
}

/** What a line of the log names an attachment by. */
export function fieldsOf({ network, containerId, ifname }: WatchedAttachment): LogFields {
  return { network, container_id: containerId, ifname };
}

/** Pause before the next CHECK of an attachment whose CHECK hung: each costs a process for as long as a plugin may take. */
const HUNG_MS = 10 * 60_000;

/** What is logged of an attachment. */
type Told = Exclude<Act, 'deleted'> | 'hung';

const MESSAGES: Readonly<Record<Told, string>> = {
  hung: 'a plugin hangs on CHECK, so the condition of an attachment is unknown; it is asked again in ten minutes',
  drifted: 'an attachment is no longer as its ADD made it',
  'damaged often':
    'an attachment is damaged again and again; repairs continue with growing pauses, and are not reported one by one',
  repaired: 'an attachment was repaired',
  'given up':
    'an attachment cannot be repaired, or is damaged again each time; it is left until that changes',
  'sound again': 'an attachment is sound again',
};

/** Why a repair did not succeed. */
function problemOf({ state, problem = 'a process works on it' }: Repaired): string | undefined {
  return state === 'sound' || state === 'mended' ? undefined : problem;
}

function count(counts: Record<string, number>, what: string): void {
  counts[what] = (counts[what] ?? 0) + 1;
}

/** A time of performance.now() in ISO 8601. */
function isoOf(at: number): string {
  return new Date(Date.now() - (performance.now() - at)).toISOString();
}

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
export interface Condition {
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
type News = 'drifted' | 'damaged often' | 'sound again' | undefined;

/** The condition after a CHECK. @param problem undefined: it was sound */
export function afterCheck(
  before: Condition | undefined,
  problem: string | undefined,
  now: number,
): { readonly condition: Condition; readonly news: News } {
  // Other damage than that which was repaired is no sign that repairs do not last, unless it follows at once.
  const isOther = problem !== undefined && before?.state === 'sound' && problem !== before.repaired;
  const { repairs = 0, undone = 0, repairedAt = 0, repaired } = before ?? {};
  const age = now - repairedAt;
  const isCalm = before === undefined || age > (isOther ? OTHER_MS : CALM_MS);
  const hasLasted = before?.state === 'sound' && age > AT_ONCE_MS;
  const kept = { repairs, undone: hasLasted ? 0 : undone, repairedAt, ...defined({ repaired }) };
  const past = isCalm ? NEVER_REPAIRED : kept;
  if (problem === undefined) {
    const wasSound = before === undefined || before.state === 'sound';
    if (wasSound)
      return { condition: { ...past, state: 'sound', since: before?.since ?? now }, news: undefined };
    // It was put right by others, so what repairs could not do counts no longer.
    return { condition: { state: 'sound', since: now, ...NEVER_REPAIRED }, news: 'sound again' };
  }
  if (before?.state === 'given up') {
    // What is missing may differ from moment to moment while another program removes it.
    const isSame = before.problem === problem || now - before.since < GIVEN_UP_MS;
    if (isSame) return { condition: before, news: undefined };
    return { condition: { state: 'drifted', problem, since: now, ...NEVER_REPAIRED }, news: 'drifted' };
  }
  if (before?.state === 'drifted') return { condition: { ...before, ...past, problem }, news: undefined };
  return { condition: { state: 'drifted', problem, since: now, ...past }, news: newsOf(past) };
}

const NEVER_REPAIRED = { repairs: 0, undone: 0, repairedAt: 0 };

/** A drift that comes back at once after a repair has been reported. */
function newsOf({ repairs, undone }: Pick<Condition, 'repairs' | 'undone'>): News {
  if (undone > 0 || repairs > OFTEN) return undefined;
  return repairs === OFTEN ? 'damaged often' : 'drifted';
}

/** How long until it may be repaired, in milliseconds; `never` if it is given up now. */
export function pauseBefore(condition: Condition, now: number): number | 'never' {
  const { state, repairs, undone, repairedAt } = condition;
  if (state === 'given up' || undone >= MAX_UNDONE || repairs >= MAX_REPAIRS) return 'never';
  const [again, often] = [pauseAfter(undone), pauseAfter(repairs - OFTEN)];
  const pause = Math.max(again, Math.min(often, LONGEST_PAUSE_MS));
  return pause === 0 ? 0 : Math.max(0, repairedAt + pause - now);
}

/** 0, 1, 2, 4, … seconds */
function pauseAfter(count: number): number {
  return count <= 0 ? 0 : FIRST_PAUSE_MS * 2 ** (count - 1);
}

/** The condition after a repair. @param problem what it could not put back; undefined: CHECK passes */
export function afterRepair(before: Condition, problem: string | undefined, now: number): Condition {
  const past = { repairs: before.repairs + 1, undone: before.undone + 1, repairedAt: now };
  if (problem === undefined)
    return { state: 'sound', since: now, ...past, ...defined({ repaired: before.problem }) };
  return { ...before, problem, ...past };
}

/** It is left alone until its condition changes. */
export function giveUp(before: Condition, now: number): Condition {
  return { ...before, state: 'given up', since: now };
}
