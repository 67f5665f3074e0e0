// What does `catena status` do?
import { listUses } from '../../chain/config/conflist.ts';
import { findExecutable } from '../../chain/config/find-plugin.ts';
import { validateNetwork } from '../../chain/config/plugin-version.ts';
import { networkStatus } from '../../chain/run/run.ts';
import { atLeast, SINCE } from '../../cni/result.ts';
import type { CommandCall } from '../command.ts';
import { loadTarget, watched } from '../target.ts';

/** Prints nothing if every plugin is ready. */
export async function run(call: CommandCall): Promise<number> {
  await watched(call, 'STATUS', undefined, async runtime => {
    const list = loadTarget(call);
    // A network without its plugins is not ready either.
    for (const { type } of listUses(list)) findExecutable(type, runtime);
    if (atLeast(list.version, SINCE.status)) await networkStatus(list, runtime);
    // Nothing else of such a list tells whether its plugins can be started.
    else await validateNetwork(list, runtime);
  });
  return 0;
}
