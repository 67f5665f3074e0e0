// How are many attachments handed over, with a trial for each kind of them?

import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Conflist } from '../../chain/config/conflist.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { visitAll } from '../../chain/run/visits.ts';
import { keyOf } from '../../cni/attachment.ts';
import { renderCniArgs } from '../../cni/cni-args.ts';
import type { CompareReport } from '../../compare/report.ts';
import { DELETED_AFTER_HANDOVER } from '../../compare/scene.ts';
import { findMissing, type HandedAttachment } from '../../handover/attachments.ts';
import { type Handover, handOverOne } from '../../handover/hand-over.ts';
import { runOwnCommand } from '../../lab/reexec.ts';
import type { CommandCall } from '../command.ts';
import { noteDone } from '../log/events.ts';
import { type Heirs, withHeirs } from './heirs.ts';

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
    const limits = { groupOf: ({ network }: HandedAttachment) => network, signal: call.signal };
    const look = async (one: HandedAttachment): Promise<Handover> => {
      const why = await findProblem(one);
      return why === undefined ? handOverOne(one, 'look', runtime) : refusal(one, why);
    };
    const found = await visitAll(attached, limits, look);
    const isRefused = !plan.force && found.some(({ state }) => state === 'refused');
    if (plan.mode === 'look' || isRefused || call.signal.aborted) return found;
    // Of those that are ready, the note of the ADD goes.
    const next = attached.filter((_, place) => found[place]?.state !== 'refused');
    const done = await visitAll(next, limits, async one => {
      const after = await handOverOne(one, 'do', runtime);
      if (after.state === 'handed over') noteDone(call, 'HANDOVER', `to ${plan.place}`, { id: after });
      return after;
    });
    const after = new Map(done.map(one => [keyOf(one), one]));
    return found.map(one => after.get(keyOf(one)) ?? one);
  });
}

function refusal({ network, containerId, ifname }: HandedAttachment, why: string): Handover {
  return { network, containerId, ifname, state: 'refused', links: [], why };
}

/** The attachments of one conflist with the same kinds of capability arguments: what holds for one of them holds for all. */
interface Kind {
  readonly list: Conflist;
  readonly example: HandedAttachment;
}

/** A key that is equal for attachments of the same kind. */
function kindOf({ list, capabilityArgs }: HandedAttachment): string {
  return JSON.stringify([list?.source, Object.keys(capabilityArgs).sort()]);
}

/**
 * Runs the conflist with our plugins, hands over, and has the other executables delete.
 * @param dir directory with the other executables, to which the conflist is written
 * @param visible directories that these executables need
 * @returns why it does not work; undefined if it does
 */
async function findTrialProblem(
  { list, example }: Kind,
  dir: string,
  visible: readonly string[],
  call: CommandCall,
): Promise<string | undefined> {
  const file = join(dir, 'list.conflist');
  const plugins = list.plugins.map(({ conf }) => conf);
  writeFileSync(file, JSON.stringify({ cniVersion: list.version, name: list.name, plugins }));
  const { args, capabilityArgs, ifname } = example;
  const dirs = [dirname(process.execPath), ...visible];
  const argv = [
    ...['compare', '--json', '--with', dir, '--scene', DELETED_AFTER_HANDOVER, '--ifname', ifname],
    ...(args.length ? ['--args', renderCniArgs(args)] : []),
    ...(Object.keys(capabilityArgs).length ? ['--cap', JSON.stringify(capabilityArgs)] : []),
    ...dirs.flatMap(one => ['--bin-dir', one]),
    file,
  ];
  const { stdout, stderr, exitCode } = await runOwnCommand(argv, call);
  if (!stdout.startsWith('{')) return `the trial failed: ${stderr.trim() || `exit code ${exitCode}`}`;
  const { crossings } = JSON.parse(stdout) as CompareReport;
  const [crossing] = crossings;
  if (crossing === undefined) return 'the trial gave no result';
  const { untried, fails, left } = crossing;
  if (untried !== undefined) return `the trial failed, since ADD fails in temporary namespaces: ${untried}`;
  if (fails.length) return `DEL still fails: ${fails.join('; ')}`;
  return left.length ? `DEL leaves ${left.join('; ')}` : undefined;
}
