// What does `catena check` do?
import { checkNetwork } from '../../chain/run.ts';
import type { CommandCall } from '../command.ts';
import { attachmentOf, loadTarget, runtimeOf } from '../target.ts';

/** Checks the attachment; says nothing when it stands. */
export async function run(call: CommandCall): Promise<number> {
  await checkNetwork(loadTarget(call), attachmentOf(call), runtimeOf(call));
  return 0;
}
