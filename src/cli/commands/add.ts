// What does `catena add` do?
import { addNetwork } from '../../chain/run/run.ts';
import type { CommandCall } from '../command.ts';
import { CNITOOLS_INDENT, isData, printData } from '../output/format.ts';
import { attachmentOf, findUnread, loadTarget, runtimeOf, watched } from '../target.ts';

/** Attaches the namespace and prints the result, indented like cnitool's. */
export async function run(call: CommandCall): Promise<number> {
  const attachment = attachmentOf(call);
  if (call.on('dry-run')) {
    const { showAdd } = await import('../dry-run.ts');
    return showAdd(call, loadTarget(call), attachment, runtimeOf(call));
  }
  const result = await watched(call, 'ADD', attachment, runtime => {
    const list = loadTarget(call);
    // For programs, standard error holds the error object and nothing else.
    const unread = isData(call) ? [] : findUnread(list, attachment.capabilityArgs ?? {});
    for (const warning of unread) call.warn(warning);
    return addNetwork(list, attachment, runtime);
  });
  await printData(call, result, CNITOOLS_INDENT);
  return 0;
}
