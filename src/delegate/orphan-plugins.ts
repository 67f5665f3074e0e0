// Which plugins of an ADD still run although their delegate runner has died?
//
// DEL of a pod ends them instead of waiting, because their result is no longer needed. They are recognised by their environment,
// which names the dead runner as well as container and interface. Plugins that another runtime runs for the same container are
// left alone.

import { endOrphanProcesses, findPlugins } from '../attachments/lock.ts';
import type { AttachmentRecord } from '../attachments/store.ts';

/** Ends plugins of an interrupted ADD for one of these interfaces of the pod, and waits until they are gone. */
export async function endOrphanPlugins(
  { containerId, runners }: Pick<AttachmentRecord, 'containerId' | 'runners'>,
  ifnames: readonly string[],
): Promise<void> {
  await endOrphanProcesses(findPlugins({ containerId, ifnames, runners, verb: 'ADD' }), 0);
}
