// What does `catena uninstall` do?
import { defined } from '../../cni/defined.ts';
import { installedStarter } from '../../install/starters.ts';
import { disableUnits, forgetUnits, isBooted } from '../../install/systemctl.ts';
import { planUninstall, type UninstallStep, uninstall } from '../../install/uninstall.ts';
import type { CommandCall } from '../command.ts';
import { type Settled, settleAttachments } from '../handover/before-uninstall.ts';
import { handoversToJson, renderHandovers } from '../handover/render.ts';
import { placesOf } from './install.ts';

/**
 * Removes the installed files, and prints what was done to each. Nothing is removed, and the exit code is 1, if there are
 * attachments that the restored executables cannot delete.
 */
export async function run(call: CommandCall): Promise<number> {
  const places = placesOf(call);
  const plan = planUninstall(places);
  const settled = await settleAttachments(call, places.binDir, plan);
  const { refusal } = settled;
  const isManaged =
    installedStarter(places.binDir)?.paths.some(path => path.startsWith('/etc/systemd/')) && isBooted();
  const remove = (): UninstallStep[] => {
    if (isManaged) disableUnits();
    const removed = uninstall(places);
    if (isManaged) forgetUnits();
    return removed;
  };
  const steps = refusal !== undefined ? [] : call.on('dry-run') ? plan : remove();
  if (call.on('json')) call.out(`${JSON.stringify(toJson(steps, settled), null, 4)}\n`);
  else
    call.out(
      render(steps, settled, `nothing that was installed is left in ${places.binDir} or ${places.confDir}\n`),
    );
  return refusal === undefined ? 0 : 1;
}

function render(steps: readonly UninstallStep[], { handovers, refusal }: Settled, nothing: string): string {
  const shown = handovers.length ? renderHandovers(handovers) : '';
  if (refusal !== undefined) return `${shown}nothing was uninstalled: ${refusal}\n`;
  const lines = steps.map(
    ({ action, path, why }) => `${action.padEnd(7)}  ${path}${why ? `: ${why}` : ''}\n`,
  );
  return `${shown}${lines.join('') || nothing}`;
}

function toJson(steps: readonly UninstallStep[], { handovers, refusal }: Settled): object {
  return {
    steps,
    ...(handovers.length ? { attachments: handoversToJson(handovers) } : {}),
    ...defined({ refusal }),
  };
}
