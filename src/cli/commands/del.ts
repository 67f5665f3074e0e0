// What does `catena del` do?
import type { Conflist } from '../../chain/config/conflist.ts';
import { findNetworkOfAdd } from '../../chain/records/config-of-add.ts';
import { deleteNetwork } from '../../chain/run/run.ts';
import type { Attachment, Runtime } from '../../chain/run/runtime.ts';
import type { CommandCall } from '../command.ts';
import { attachmentOf, loadTarget } from '../target.ts';
import { watched } from '../watched.ts';

/** Detaches the namespace, which may be missing; an empty path means the same. */
export async function run(call: CommandCall): Promise<number> {
  const attachment = attachmentOf(call);
  await watched(call, 'DEL', attachment, runtime =>
    deleteNetwork(loadOrRecall(call, attachment, runtime), attachment, runtime),
  );
  return 0;
}

/** A network whose file is missing or broken can still be deleted if its ADD was recorded. */
function loadOrRecall(call: CommandCall, attachment: Attachment, runtime: Runtime): Conflist {
  try {
    return loadTarget(call);
  } catch (error) {
    const [network = ''] = call.positionals;
    const frozen = findNetworkOfAdd({ ...attachment, network }, runtime);
    if (frozen === undefined) throw error;
    return frozen;
  }
}
