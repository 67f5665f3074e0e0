// What does `catena status` do?
import { networkStatus } from '../../chain/run/run.ts';
import type { CommandCall } from '../command.ts';
import { loadTarget } from '../target.ts';
import { watched } from '../watched.ts';

/** Prints nothing if every plugin is ready. */
export async function run(call: CommandCall): Promise<number> {
  await watched(call, 'STATUS', undefined, runtime => networkStatus(loadTarget(call), runtime));
  return 0;
}
