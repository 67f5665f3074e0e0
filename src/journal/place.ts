// In which file is the record of an attachment?
import { join } from 'node:path';
import { type AttachmentId, digestOf } from '../cni/attachment.ts';
import { findContainerIdProblem } from '../cni/env.ts';
import { unfinishedName } from '../files/put-file.ts';
import { findIfnameProblem } from '../net/ifname.ts';

/** Longest file name, in bytes (NAME_MAX of linux/limits.h), less what a temporary name adds. */
const MAX_BYTES = 200;

/** Directory of all records, with one directory per network. */
export function recordsDir(stateDir: string): string {
  return join(stateDir, 'attachments');
}

/**
 * Directory of marks, by network: one for each unsettled record. Without marks, every verb would have to read all
 * records to find the unsettled ones.
 */
export function marksDir(stateDir: string): string {
  return join(stateDir, 'unsettled');
}

/** The record of an attachment: `attachments/<network>/<container id>:<interface>`. */
export function recordFileOf(stateDir: string, id: AttachmentId): string {
  return join(recordsDir(stateDir), directoryOf(id.network), fileNameOf(id));
}

/** The mark of an unsettled record. */
export function markFileOf(stateDir: string, id: AttachmentId): string {
  return join(marksDir(stateDir), directoryOf(id.network), fileNameOf(id));
}

/**
 * The temporary file of a record. It is among the marks of its network, which every verb lists, so that files left by a crash
 * are found at once.
 */
export function unfinishedFileOf(stateDir: string, { network }: Pick<AttachmentId, 'network'>): string {
  return join(marksDir(stateDir), directoryOf(network), unfinishedName());
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
