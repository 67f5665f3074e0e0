// In which files are the note and the entry of an attachment?
import { join } from 'node:path';
import { type AttachmentId, digestOf, findContainerIdProblem } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { findIfnameProblem } from '../net/interface.ts';

/** Longest file name, in bytes (NAME_MAX of linux/limits.h), less what a temporary name adds. */
const MAX_BYTES = 200;

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

/** Directory name of a network: its own name, or `~` and a digest if that is unsafe or too long. */
export function directoryOf(network: string): string {
  return findContainerIdProblem(network) === undefined && network.length <= MAX_BYTES
    ? network
    : `~${digestOf(network)}`;
}

/** Name of the file of an attachment in the directory of its network. */
export function fileNameOf({ containerId, ifname }: Pick<AttachmentId, 'containerId' | 'ifname'>): string {
  const safe = findContainerIdProblem(containerId) === undefined && findIfnameProblem(ifname) === undefined;
  const name = `${containerId}:${ifname}`;
  // Valid names begin with a letter or digit, so none looks like a digest, and no digest like a name.
  return safe && name.length <= MAX_BYTES ? name : `~${digestOf(`${containerId}\0${ifname}`)}`;
}
