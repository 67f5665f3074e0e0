// In which file is the record of an attachment?
import { join } from 'node:path';
import { type Attachment, digestOf } from '../cni/attachment.ts';
import { findContainerIdProblem } from '../cni/env.ts';
import { unfinishedName } from '../files/unfinished.ts';
import { findIfnameProblem } from '../net/ifname.ts';

/** Longest name of a file, in bytes (NAME_MAX of linux/limits.h), less what a temporary name adds. */
const MAX_BYTES = 200;

/** Directory of all records: one directory per network in it. */
export function recordsDir(stateDir: string): string {
  return join(stateDir, 'attachments');
}

/**
 * Directory of marks: one for each record that is not settled, by network. Without it every verb would have to read all
 * records to find those that need work.
 */
export function marksDir(stateDir: string): string {
  return join(stateDir, 'unsettled');
}

/** The record of an attachment: `attachments/<network>/<container id>:<interface>`. */
export function recordFileOf(stateDir: string, id: Attachment): string {
  return join(recordsDir(stateDir), directoryOf(id.network), fileNameOf(id));
}

/** The mark of a record that is not settled. */
export function markFileOf(stateDir: string, id: Attachment): string {
  return join(marksDir(stateDir), directoryOf(id.network), fileNameOf(id));
}

/**
 * A name under which a record is written before it gets its own: among the marks of its network, which every verb lists, so
 * that what a crash leaves is met at once.
 */
export function unfinishedFileOf(stateDir: string, { network }: Pick<Attachment, 'network'>): string {
  return join(marksDir(stateDir), directoryOf(network), unfinishedName());
}

/** Directory name of a network: its own, or `~` and a digest when that is no safe or too long a name. */
export function directoryOf(network: string): string {
  return findContainerIdProblem(network) === undefined && network.length <= MAX_BYTES
    ? network
    : `~${digestOf(network)}`;
}

function fileNameOf({ containerId, ifname }: Attachment): string {
  const safe = findContainerIdProblem(containerId) === undefined && findIfnameProblem(ifname) === undefined;
  const name = `${containerId}:${ifname}`;
  // Names that are let in begin with a letter or digit: none looks like a digest, and no digest like another's name.
  return safe && name.length <= MAX_BYTES ? name : `~${digestOf(`${containerId}\0${ifname}`)}`;
}
