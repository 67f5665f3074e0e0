// What does `catena del` do?
import type { Conflist } from '../../chain/config/conflist.ts';
import { findNetworkOfAdd } from '../../chain/records/known-add.ts';
import { deleteNetwork } from '../../chain/run/run.ts';
import type { Attachment, ChainRuntime, Runtime } from '../../chain/run/runtime.ts';
import type { CommandCall } from '../command.ts';
import { attachmentOf, loadTarget, runtimeOf, watched } from '../target.ts';

/** Detaches the namespace, which may be missing; an empty path means the same. */
export async function run(call: CommandCall): Promise<number> {
  const attachment = attachmentOf(call);
  if (call.on('dry-run')) {
    const runtime = runtimeOf(call);
    const { showDel } = await import('../dry-run.ts');
    return showDel(call, loadOrRecall(call, attachment, runtime), attachment, runtime);
  }
  await watched(call, 'DEL', attachment, async runtime => {
    const del = (how: ChainRuntime) => deleteNetwork(loadOrRecall(call, attachment, how), attachment, how);
    if (!call.on('forget')) return del(runtime);
    const { forget } = await import('../forget.ts');
    const [network = ''] = call.positionals;
    for (const left of await forget(network, attachment, runtime, call.plugins.types, del)) call.warn(left);
  });
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
