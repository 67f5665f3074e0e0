// What does `catena check` do?
import { checkNetwork } from '../../chain/run/run.ts';
import type { CommandCall } from '../command.ts';
import { attachmentOf, loadTarget, watched } from '../target.ts';

/** Checks the attachment; prints nothing if it is intact. */
export async function run(call: CommandCall): Promise<number> {
  const attachment = attachmentOf(call);
  await watched(call, 'CHECK', attachment, runtime => checkNetwork(loadTarget(call), attachment, runtime));
  return 0;
}
