// What does `catena status` do?
import { listUses } from '../../chain/config/plugin-uses.ts';
import { findExecutable } from '../../chain/run/call-plugins.ts';
import { networkStatus } from '../../chain/run/run.ts';
import type { CommandCall } from '../command.ts';
import { loadTarget } from '../target.ts';
import { watched } from '../watched.ts';

/** Prints nothing if every plugin is ready. */
export async function run(call: CommandCall): Promise<number> {
  await watched(call, 'STATUS', undefined, async runtime => {
    const list = loadTarget(call);
    // A list before 1.1.0 has no STATUS, and a network without its plugins is not ready either.
    for (const { type } of listUses(list)) findExecutable(type, runtime);
    await networkStatus(list, runtime);
  });
  return 0;
}
