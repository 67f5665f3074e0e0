// What does `catena uninstall` do?
import { planUninstall, uninstall } from '../../install/uninstall.ts';
import type { CommandCall } from '../command.ts';
import { placesOf } from './install.ts';

/** Removes what was installed, and shows what became of each file. */
export async function run(call: CommandCall): Promise<number> {
  const places = placesOf(call);
  const steps = call.on('dry-run') ? planUninstall(places) : uninstall(places);
  if (call.on('json')) call.out(`${JSON.stringify({ steps }, null, 4)}\n`);
  else if (!steps.length) call.out(`nothing of ours is in ${places.binDir} or ${places.confDir}\n`);
  for (const { action, path, why } of call.on('json') ? [] : steps)
    call.out(`${action.padEnd(7)}  ${path}${why ? `: ${why}` : ''}\n`);
  return 0;
}
