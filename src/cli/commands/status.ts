// What does `catena status` do?
import { networkStatus } from '../../chain/run.ts';
import type { CommandCall } from '../command.ts';
import { loadTarget, runtimeOf } from '../target.ts';

/** Says nothing when every link is ready. */
export async function run(call: CommandCall): Promise<number> {
  await networkStatus(loadTarget(call), runtimeOf(call));
  return 0;
}
