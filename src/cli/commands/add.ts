// What does `catena add` do?
import { addNetwork } from '../../chain/run.ts';
import type { CommandCall } from '../command.ts';
import { attachmentOf, loadTarget } from '../target.ts';
import { watched } from '../watched.ts';

/** Attaches the namespace and prints the result, indented as cnitool does. */
export async function run(call: CommandCall): Promise<number> {
  const attachment = attachmentOf(call);
  const result = await watched(call, 'ADD', attachment, runtime =>
    addNetwork(loadTarget(call), attachment, runtime),
  );
  call.out(`${JSON.stringify(result, null, 4)}\n`);
  return 0;
}
