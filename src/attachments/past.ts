// What is to be done about an attachment before anything else, and is that up to this network namespace of the machine?
//
// Rules, host ends and ports of an attachment are in the namespace in which its runner worked. Plugins that are called in another one
// find nothing there, succeed, and give back an address that the attachment still has.

import { readdirSync } from 'node:fs';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isOfEarlierBoot } from '../files/process-stat.ts';
import { tryRead } from '../files/read-file.ts';
import { findNetnsCookie } from '../sys/netns-cookie.ts';
import { holderOf, type Runner } from './lock.ts';
import { compareNetns, hostCookie } from './netns-identity.ts';
import type { AttachmentRecord } from './notes.ts';

type Environment = Readonly<Record<string, string | undefined>> | undefined;

/** What operations, or a reboot, have left of an attachment. */
export interface Past {
  /**
   * `settled`: its ADD succeeded, and nothing has begun since. `changing`: plugins were about to change it, which is undone or finished.
   * `adding`, `deleting`: its ADD or DEL was cut off. `left`: its DEL has failed. `outlived`: it is of an earlier boot. `elsewhere`: it is up
   * to another network namespace of this machine.
   */
  readonly kind: 'settled' | 'changing' | 'adding' | 'deleting' | 'left' | 'outlived' | 'elsewhere';
  /** Why it is not simply there, human-readable; undefined if it is, also while it is changing. */
  readonly why: string | undefined;
  /** Its ADD succeeded, and no DEL has begun. It may have outlived its namespace. */
  readonly stands: boolean;
  /** The process that works on it, as far as its note says. */
  readonly holder: Runner | undefined;
  /** Why it is to be deleted now; undefined if it is there, a process works on it, or that is up to another network namespace. */
  readonly toDelete: string | undefined;
  /**
   * Where the namespace of its ADD is: `same` if a path, that of the ADD unless given, leads to it, `gone` if it does not exist, as after a
   * reboot, `other` if the path leads to another one.
   */
  netns(path?: string): 'same' | 'gone' | 'other';
  /**
   * For a DEL or an ADD that names this attachment. If no process and no mount that can be seen has that namespace any longer, what was
   * made in it has ended with it, as after a restart of a node that is itself a container.
   * @throws CniError 11 naming a path of the namespace
   */
  refuseElsewhere(): void;
}

/** @param record as it was read; a process may be at work on it */
export function pastOf(record: AttachmentRecord, env: Environment): Past {
  const [kind, why] = leftOf(record, env);
  const holder = holderOf(record);
  const toDelete = kind === 'elsewhere' || holder ? undefined : why;
  return {
    ...{ kind, why, stands: record.phase === 'attached', holder, toDelete },
    netns: (path = record.netns) => (isOfEarlierBoot(record, env) ? 'gone' : compareNetns(path, record)),
    refuseElsewhere: () => kind === 'elsewhere' && refuseElsewhere(record),
  };
}

function leftOf(record: AttachmentRecord, env: Environment): [kind: Past['kind'], why?: string] {
  const { phase, attempts, lastErrors, foreign, change } = record;
  if (isElsewhere(record, env)) return ['elsewhere', ELSEWHERE];
  const isAttached = phase === 'attached';
  // Its runtime deletes an attachment of its own, also after a reboot.
  if (isOfEarlierBoot(record, env) && !(foreign && isAttached)) return ['outlived', EARLIER_BOOT];
  if (isAttached) return [change === undefined ? 'settled' : 'changing'];
  if (phase === 'adding') return [phase, 'its ADD was interrupted'];
  if (phase === 'deleting') return [phase, 'its DEL was interrupted'];
  const times = attempts === 1 ? 'once' : `${attempts} times`;
  return ['left', `its DEL failed ${times}: ${lastErrors.map(({ msg }) => msg).join('; ')}`];
}

/** Why an attachment of an earlier boot is deleted, human-readable. */
export const EARLIER_BOOT = 'it is from an earlier boot of the machine';

const ELSEWHERE = 'it was attached in another network namespace of this machine';

type Made = Pick<AttachmentRecord, 'boot' | 'hostCookie'>;

/** Whether its runner worked in another network namespace. Of an earlier boot no namespace is left, and cookies begin again. */
function isElsewhere(record: Made, env: Environment): boolean {
  if (record.hostCookie === undefined || isOfEarlierBoot(record, env)) return false;
  const { hostCookie: here } = hostCookie();
  return here !== undefined && here !== record.hostCookie;
}

function refuseElsewhere(record: AttachmentRecord): void {
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
