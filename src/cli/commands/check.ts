// What does `catena check` do?
import { checkNetwork } from '../../chain/run/run.ts';
import { invalidConfig } from '../../cni/errors.ts';
import type { CommandCall } from '../command.ts';
import { attachmentOf, loadTarget, watched } from '../target.ts';

/** Checks the attachment; prints nothing if it is intact. */
export async function run(call: CommandCall): Promise<number> {
  const attachment = attachmentOf(call);
  await watched(call, 'CHECK', attachment, runtime => {
    const list = loadTarget(call);
    if (list.disableCheck) {
      const text = `Cannot check network "${list.name}": its list sets "disableCheck", so nothing is looked at`;
      call.warn(invalidConfig(text));
    }
    return checkNetwork(list, attachment, runtime);
  });
  return 0;
}
