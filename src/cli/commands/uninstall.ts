// What does `catena uninstall` do?

import { defined } from '../../cni/json.ts';
import type { PurgeStep } from '../../node/purge.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import type { CommandCall } from '../command.ts';
import { type HandoverOutcome, handOverBefore } from '../handover/before-uninstall.ts';
import { renderHandovers } from '../handover/hand-over-all.ts';
import { planUninstall, type UninstallStep, uninstall } from '../install/uninstall.ts';
import { disableUnits, forgetUnits, installedStarter, isBooted } from '../install/units.ts';
import { noteDone } from '../log/events.ts';
import { printAnswer } from '../output/print.ts';
import { deleteGone, findPurgeObstacle, leavePools, purge, purgePlacesOf } from '../uninstall/purge.ts';
import { placesOf } from './install.ts';

/**
 * Removes the installed files, with `--purge` everything else of ours as well, and prints what was done to each. Nothing is
 * removed, and the exit code is 1, if there are attachments that the restored executables cannot delete.
 */
export async function run(call: CommandCall): Promise<number> {
  const places = placesOf(call);
  const plan = planUninstall(places);
  const purges = call.on('purge');
  const purgePlaces = purges ? await purgePlacesOf(call, places.pluginDirs) : undefined;
  const gone = purges ? await deleteGone(call) : [];
  const handedOver = await handOverBefore(call, places.binDir, plan);
  const refusal = handedOver.refusal ?? (purges ? findPurgeObstacle(gone, call) : undefined);
  const isManaged =
    installedStarter(places.binDir)?.paths.some(path => path.startsWith('/etc/systemd/')) && isBooted();
  const remove = (): UninstallStep[] => {
    if (isManaged) disableUnits();
    const removed = uninstall(places);
    if (isManaged) forgetUnits();
    return removed;
  };
  // Before the kubeconfig is removed.
  const left = purges && refusal === undefined ? await leavePools(call) : [];
  const steps = refusal !== undefined ? [] : call.on('dry-run') ? plan : remove();
  const purged =
    refusal === undefined && purgePlaces
      ? [...left, ...(await purge(purgePlaces, call.on('dry-run')))]
      : undefined;
  // Of a purge nothing is left, this note included.
  if (refusal === undefined && !purges && !call.on('dry-run'))
    noteDone(call, 'UNINSTALL', `${steps.length} files of "${places.binDir}" and "${places.confDir}"`);
  const done = { ...handedOver, refusal, steps, ...defined({ purged }) };
  const nothing = `nothing that was installed is left in ${places.binDir} or ${places.confDir}\n`;
  await printAnswer(call, 'Uninstallation', toJson(done), () => render(done, nothing));
  return refusal === undefined ? 0 : 1;
}

interface Done extends Pick<HandoverOutcome, 'handovers'> {
  readonly refusal: string | undefined;
  readonly steps: readonly UninstallStep[];
  readonly purged?: readonly PurgeStep[];
}

function render({ handovers, refusal, steps, purged = [] }: Done, nothing: string): string {
  const shown = handovers.length ? renderHandovers(handovers) : '';
  if (refusal !== undefined) return `${shown}nothing was uninstalled: ${refusal}\n`;
  const rows = [...steps.map(({ path, ...step }) => ({ ...step, what: path })), ...purged];
  const lines = rows.map(({ action, what, why }) => `${action.padEnd(7)}  ${what}${why ? `: ${why}` : ''}\n`);
  return `${shown}${lines.join('') || nothing}`;
}

function toJson({ handovers, refusal, steps, purged }: Done): AnswerOf<'Uninstallation'> {
  return {
    steps,
    ...defined({ purged }),
    ...(handovers.length ? { attachments: handovers } : {}),
    ...defined({ refusal }),
  };
}
