// What does `catena add` do?
import { addNetwork } from '../../chain/run.ts';
import type { CommandCall } from '../command.ts';
import { attachmentOf, loadTarget, runtimeOf } from '../target.ts';

/** Attaches the namespace and prints the result, indented as cnitool does. */
export async function run(call: CommandCall): Promise<number> {
  const result = await addNetwork(loadTarget(call), attachmentOf(call), runtimeOf(call));
  call.out(`${JSON.stringify(result, null, 4)}\n`);
  return 0;
}
