// With which commands does an operator mend an attachment?
import type { AttachmentId } from '../cni/attachment.ts';
import { renderCniArgs } from '../cni/cni-args.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import type { WatchedAttachment } from './attachments.ts';

/**
 * What mends a damaged attachment: a repair puts back rules, addresses and routes, but no devices.
 * @param present names of the devices of the host
 */
export function mendFor(one: WatchedAttachment, present: readonly string[]): string {
  const isComplete = one.devices.every(name => present.includes(name));
  return isComplete ? repairCommand(one.id) : commandsFor(one);
}

/** Whichever runtime made the attachments of the network. */
export function repairCommand({ network }: Pick<AttachmentId, 'network'>): string {
  return `catena repair ${network}`;
}

/**
 * DEL and ADD with what the ADD was given. An attachment of another runtime is made again by that one: it would not learn of a new
 * address. So is a network of the delegate runner.
 */
export function commandsFor({ id, known, recorded, pod }: WatchedAttachment): string {
  const isOurs = recorded !== undefined && pod === undefined;
  if (!isOurs) return `recreate container "${id.containerId}" with the runtime that made it`;
  const { network, containerId, ifname } = id;
  const target = [network, known.netns, '--container-id', containerId, '--ifname', ifname];
  const args = known.args.length ? ['--args', renderCniArgs(known.args)] : [];
  const caps = Object.keys(known.capabilityArgs).length
    ? ['--cap', JSON.stringify(known.capabilityArgs)]
    : [];
  return `${line('del', target)} && ${line('add', [...target, ...args, ...caps])}`;
}

/** DEL of an attachment that a third-party plugin will never delete. */
export function forgetCommand({
  network,
  netns,
  containerId,
  ifname,
}: Pick<AttachmentRecord, 'network' | 'netns' | 'containerId' | 'ifname'>): string {
  return line('del', ['--forget', network, netns, '--container-id', containerId, '--ifname', ifname]);
}

function line(verb: string, words: readonly string[]): string {
  return ['catena', verb, ...words].map(quote).join(' ');
}

/** A word as a shell reads it. */
function quote(word: string): string {
  return /^[\w./:=,@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
