// What does `catena detach` do?
import { deadlineOf } from '../../chain/run/runtime.ts';
import type { CommandCall } from '../command.ts';
import { detach, refuseNeeded, withContainer } from '../running/change.ts';
import { findKnown, pickAttachment } from '../running/container.ts';
import { runtimeOf, watched } from '../target.ts';

/** Detaches a container from one of its networks; what its runtime counts on only with `--force`. */
export async function run(call: CommandCall): Promise<number> {
  const [given = '', what = ''] = call.positionals;
  const own = runtimeOf(call);
  const { containerId } = findKnown(given, call.cwd, own);
  await withContainer(containerId, own, deadlineOf(own, 'DEL'), async () => {
    const container = findKnown(containerId, call.cwd, own);
    const one = pickAttachment(container, what);
    if (!call.on('force')) refuseNeeded(one, container);
    await watched(call, 'DEL', one, runtime => detach(one, runtime), one.network);
  });
  return 0;
}
