// What does `catena add` do?
import { addNetwork } from '../../chain/run/run.ts';
import type { CommandCall } from '../command.ts';
import { attachmentOf, loadTarget, warn } from '../target.ts';
import { findUnread } from '../unread-capabilities.ts';
import { watched } from '../watched.ts';

/** Attaches the namespace and prints the result, indented like cnitool's. */
export async function run(call: CommandCall): Promise<number> {
  const attachment = attachmentOf(call);
  const result = await watched(call, 'ADD', attachment, runtime => {
    const list = loadTarget(call);
    // With --json, standard error holds the error object and nothing else.
    const unread = call.on('json') ? [] : findUnread(list, attachment.capabilityArgs ?? {});
    for (const warning of unread) warn(call, warning);
    return addNetwork(list, attachment, runtime);
  });
  call.out(`${JSON.stringify(result, null, 4)}\n`);
  return 0;
}
