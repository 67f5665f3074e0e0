// In which files are the note and the entry of an attachment?
import { join } from 'node:path';
import { type AttachmentId, directoryOf, fileNameOf } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';

/** Directory of notes, by network: one for each attachment of which something is unfinished, and no others. */
export function notesDir(stateDir: string): string {
  return join(stateDir, 'unsettled');
}

/** The note of an attachment: `unsettled/<network>/<container id>:<interface>`. */
export function noteFileOf(stateDir: string, id: AttachmentId): string {
  return join(notesDir(stateDir), directoryOf(id.network), fileNameOf(id));
}

/**
 * The entry of an attachment in a directory of libcni's.
 * @throws CniError 7 when a part is empty or would escape the directory
 */
export function cacheFileOf(dir: string, { network, containerId, ifname }: AttachmentId): string {
  if ([network, containerId, ifname].every(part => part !== '' && !/[/\0]/.test(part))) {
    return join(dir, 'results', `${network}-${containerId}-${ifname}`);
  }
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot build the name of the cached result: it needs a network ("${network}"), a container id ("${containerId}") and an interface ("${ifname}"), without "/"`,
  );
}

/** Directory of links to the directories of libcni's entries that a journal has used: nothing else says where its attachments are. */
export function cachesDir(stateDir: string): string {
  return join(stateDir, 'caches');
}
