// What does `catena detach` do?
import { deadlineOf } from '../../chain/run/runtime.ts';
import type { CommandCall } from '../command.ts';
import { detach, refuseNeeded, whereRecorded, withContainer } from '../running/change.ts';
import { findKnown, type KnownContainer, pickAttachment } from '../running/container.ts';
import { runtimeOf, watched } from '../target.ts';

/** Detaches a container from one of its networks; what its runtime counts on only with `--force`. */
export async function run(call: CommandCall): Promise<number> {
  const [given = '', what = ''] = call.positionals;
  const own = runtimeOf(call);
  const pick = (container: KnownContainer) => {
    const one = pickAttachment(container, what);
    if (!call.on('force')) refuseNeeded(one, container);
    return one;
  };
  if (call.on('dry-run')) {
    const one = pick(findKnown(given, call.cwd, own));
    const { showDel } = await import('../dry-run.ts');
    return showDel(call, undefined, one, whereRecorded(one, own));
  }
  const { containerId } = findKnown(given, call.cwd, own);
  await withContainer(containerId, own, deadlineOf(own, 'DEL'), async () => {
    const one = pick(findKnown(containerId, call.cwd, own));
    await watched(call, 'DEL', one, runtime => detach(one, runtime), one.network);
  });
  return 0;
}
