// What does `catena attach` do?
import { deadlineOf } from '../../chain/run/runtime.ts';
import { capabilitiesOf } from '../capability-options.ts';
import type { CommandCall } from '../command.ts';
import { CNITOOLS_INDENT, isData, printData } from '../output/format.ts';
import { attach, planAttach, undoEarlierTry, withContainer } from '../running/change.ts';
import {
  type ContainerPlace,
  findKnown,
  findPlace,
  type KnownContainer,
  podArgs,
} from '../running/container.ts';
import { findUnread, loadTarget, parseArgs, runtimeOf, watched } from '../target.ts';

/** Attaches a running container to one more network and prints the result, indented like that of `catena add`. */
export async function run(call: CommandCall): Promise<number> {
  const [given = '', network = ''] = call.positionals;
  const list = loadTarget(call, network);
  const capabilityArgs = capabilitiesOf(call);
  const own = runtimeOf(call);
  const chosen = { network, ifname: call.text('ifname'), request: own.request };
  const planFor = (container: KnownContainer, place: ContainerPlace) => {
    // Of its pod, then those of the command line.
    const args = [...podArgs(container), ...parseArgs(call.text('args') ?? '')];
    return planAttach(container, place, { ...chosen, args, capabilityArgs });
  };
  if (call.on('dry-run')) {
    const container = findKnown(given, call.cwd, own);
    const { showAdd } = await import('../dry-run.ts');
    return showAdd(call, list, planFor(container, findPlace(container, own)), own);
  }
  const unread = isData(call) ? [] : findUnread(list, capabilityArgs);
  for (const warning of unread) call.warn(warning);
  const { containerId } = findKnown(given, call.cwd, own);
  const result = await withContainer(containerId, own, deadlineOf(own, 'ADD'), async () => {
    await undoEarlierTry(findKnown(containerId, call.cwd, own), chosen, own);
    const container = findKnown(containerId, call.cwd, own);
    const place = findPlace(container, own);
    const attachment = planFor(container, place);
    const to = { container, place, list, mayAddDefault: call.on('default-route') };
    const work = (runtime: typeof own) => attach(to, attachment, runtime);
    return watched(call, 'ADD', attachment, work, network);
  });
  await printData(call, result, CNITOOLS_INDENT);
  return 0;
}
