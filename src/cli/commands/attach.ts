// What does `catena attach` do?
import { deadlineOf } from '../../chain/run/runtime.ts';
import type { CniArgs } from '../../cni/env.ts';
import { capabilitiesOf } from '../capability-options.ts';
import type { CommandCall } from '../command.ts';
import { CNITOOLS_INDENT, isData, printData } from '../output/format.ts';
import { attach, planAttach, undoEarlierTry, withContainer } from '../running/change.ts';
import { findKnown, findPlace, podArgs } from '../running/container.ts';
import { findUnread, loadTarget, parseArgs, runtimeOf, watched } from '../target.ts';

/** Attaches a running container to one more network and prints the result, indented like that of `catena add`. */
export async function run(call: CommandCall): Promise<number> {
  const [given = '', network = ''] = call.positionals;
  const list = loadTarget(call, network);
  const capabilityArgs = capabilitiesOf(call);
  const unread = isData(call) ? [] : findUnread(list, capabilityArgs);
  for (const warning of unread) call.warn(warning);
  const own = runtimeOf(call);
  const { containerId } = findKnown(given, call.cwd, own);
  const result = await withContainer(containerId, own, deadlineOf(own, 'ADD'), async () => {
    const { request } = own;
    const chosen = { network, ifname: call.text('ifname'), request };
    await undoEarlierTry(findKnown(containerId, call.cwd, own), chosen, own);
    const container = findKnown(containerId, call.cwd, own);
    const place = findPlace(container, own);
    const attachment = planAttach(container, place, {
      ...chosen,
      ...{ args: argsFor(container, call), capabilityArgs },
    });
    const to = { container, place, list, mayAddDefault: call.on('default-route') };
    const work = (runtime: typeof own) => attach(to, attachment, runtime);
    return watched(call, 'ADD', attachment, work, network);
  });
  await printData(call, result, CNITOOLS_INDENT);
  return 0;
}

/** Of its pod, then those of the command line. */
export function argsFor(container: Parameters<typeof podArgs>[0], call: CommandCall): CniArgs {
  return [...podArgs(container), ...parseArgs(call.text('args') ?? '')];
}
