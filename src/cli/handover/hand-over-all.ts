// How are many attachments handed over, with a trial for each kind of them?
import type { Runtime } from '../../chain/run/runtime.ts';
import type { HandedAttachment } from '../../handover/attachments.ts';
import { type Handover, handOverOne } from '../../handover/hand-over.ts';
import { findMissing } from '../../handover/missing.ts';
import type { CommandCall } from '../command.ts';
import { noteDone } from '../log/events.ts';
import { type Heirs, withHeirs } from './heirs.ts';
import { findTrialProblem, kindOf } from './trial.ts';

/** To which executables, and how. */
export interface HandoverPlan {
  /** Executables that will delete the attachments. */
  readonly heirs: Heirs;
  /** Name of their location, for messages. */
  readonly place: string;
  /** Directories that must be visible during the trials. */
  readonly visible: readonly string[];
  readonly mode: 'look' | 'do';
  /** Skip the trials, and hand over the others if one cannot be. */
  readonly force: boolean;
}

/**
 * Asks the plugins of every attachment before any of them changes something. If one cannot be handed over, none is, and the others
 * stay `pending`, unless `force` is set.
 */
export async function handOverAll(
  attached: readonly HandedAttachment[],
  plan: HandoverPlan,
  call: CommandCall,
  runtime: Runtime,
): Promise<Handover[]> {
  return await withHeirs(plan.heirs, async dir => {
    const problems = new Map<string, string | undefined>();
    const findProblem = async (one: HandedAttachment): Promise<string | undefined> => {
      const { list } = one;
      const missing = findMissing(one, plan.heirs, plan.place);
      if (missing !== undefined || list === undefined || one.isGone || plan.force) return missing;
      const kind = kindOf(one);
      if (!problems.has(kind))
        problems.set(kind, await findTrialProblem({ list, example: one }, dir, plan.visible, call));
      return problems.get(kind);
    };
    const looked: (readonly [HandedAttachment, Handover])[] = [];
    for (const one of attached) {
      if (call.signal.aborted) break;
      const why = await findProblem(one);
      looked.push([one, why === undefined ? await handOverOne(one, 'look', runtime) : refusal(one, why)]);
    }
    const found = looked.map(([, one]) => one);
    const isRefused = !plan.force && found.some(({ state }) => state === 'refused');
    if (plan.mode === 'look' || isRefused || call.signal.aborted) return found;
    const done: Handover[] = [];
    for (const [one, before] of looked) {
      // Of those that are ready, the note of the ADD goes.
      const isNext = before.state !== 'refused' && !call.signal.aborted;
      const after = isNext ? await handOverOne(one, 'do', runtime) : before;
      if (after.state === 'handed over') noteDone(call, 'HANDOVER', `to ${plan.place}`, { id: after });
      done.push(after);
    }
    return done;
  });
}

function refusal({ network, containerId, ifname }: HandedAttachment, why: string): Handover {
  return { network, containerId, ifname, state: 'refused', links: [], why };
}
