// Was an attachment made in another network namespace of this machine?
//
// Rules, host ends and ports of an attachment are in the namespace in which its runner worked. Plugins that are called in another one
// find nothing there, succeed, and give back an address that the attachment still has.
import { readdirSync } from 'node:fs';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { tryRead } from '../files/read-file.ts';
import { findNetnsCookie } from '../sys/netns-cookie.ts';
import { isOfEarlierBoot } from './boot.ts';
import type { AttachmentRecord } from './record.ts';

type Environment = Readonly<Record<string, string | undefined>> | undefined;
type Made = Pick<AttachmentRecord, 'boot' | 'hostCookie'>;

/** Why such an attachment is left alone, human-readable. */
export const ELSEWHERE = 'it was attached in another network namespace of this machine';

/** The cookie of the namespace that this process works in, as a record has it. A process stays in one. */
export function hostCookie(): { readonly hostCookie?: string } {
  own ??= findNetnsCookie('/proc/thread-self/ns/net');
  return own === undefined ? {} : { hostCookie: own };
}

let own: string | undefined;

/** Whether its runner worked in another network namespace. Of an earlier boot no namespace is left, and cookies begin again. */
export function isElsewhere(record: Made, env: Environment): boolean {
  if (record.hostCookie === undefined || isOfEarlierBoot(record, env)) return false;
  const { hostCookie: here } = hostCookie();
  return here !== undefined && here !== record.hostCookie;
}

/**
 * For a DEL or an ADD that names this attachment. If no process and no mount that can be seen has that namespace any longer, what was
 * made in it has ended with it, as after a restart of a node that is itself a container.
 * @throws CniError 11 naming a path of the namespace
 */
export function refuseElsewhere(record: AttachmentRecord, env: Environment): void {
  if (!isElsewhere(record, env)) return;
  const path = pathsOfNamespaces().find(one => findNetnsCookie(one) === record.hostCookie);
  if (path === undefined) return;
  const { network, containerId, ifname } = record;
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot change interface "${ifname}" of container "${containerId}" on network "${network}": ${ELSEWHERE}; run it there (nsenter --net=${path})`,
  );
}

/** One path of each network namespace that a process or a mount has. */
function pathsOfNamespaces(): string[] {
  const mounts = (tryRead('/proc/self/mountinfo') ?? '').split('\n').flatMap(line => {
    const [, , , root = '', point = ''] = line.split(' ');
    return root.startsWith('net:[') ? point : [];
  });
  const processes = readdirSync('/proc').filter(name => /^\d+$/.test(name));
  return [...mounts, ...processes.map(pid => `/proc/${pid}/ns/net`)];
}
