// Which attachments does a change concern?

import type { AttachmentId } from '../cni/attachment.ts';
import { isContainer } from '../journal/generation.ts';
import type { WatchedAttachment } from './attachments.ts';
import type { Hint } from './hint.ts';

type Attachments = ReadonlyMap<string, WatchedAttachment>;

/**
 * The attachments that hints about owners and devices name. Changes of what no attachment has concern none.
 * @param known the attachments as last listed
 * @param relist lists them again, for a hint that names none of these: an attachment may be new
 * @returns their keys
 */
export function chooseConcerned(
  hints: readonly Hint[],
  known: Attachments,
  relist: () => Attachments,
): Set<string> {
  const owners = new Map<string, AttachmentId>();
  const devices = new Set<string>();
  for (const hint of hints) {
    if (hint.of === 'owner') owners.set(Object.values(hint.owner).join('\n'), hint.owner);
    if (hint.of === 'device') devices.add(hint.name);
  }
  if (owners.size === 0 && devices.size === 0) return new Set();
  const found = select(known, [...owners.values()], devices);
  return found.isComplete ? found.keys : select(relist(), [...owners.values()], devices).keys;
}

/**
 * The attachments whose device on the host has one of these names.
 * @returns their keys, and whether each name is that of one
 */
export function withDevices(
  attachments: Attachments,
  names: ReadonlySet<string>,
): { readonly keys: ReadonlySet<string>; readonly isComplete: boolean } {
  return select(attachments, [], names);
}

function select(
  attachments: Attachments,
  owners: readonly AttachmentId[],
  devices: ReadonlySet<string>,
): { readonly keys: Set<string>; readonly isComplete: boolean } {
  const keys = new Set<string>();
  const named = new Set<string>();
  const unmet = new Set(owners);
  for (const { key, id, devices: own } of attachments.values()) {
    for (const device of own) {
      if (!devices.has(device)) continue;
      keys.add(key);
      named.add(device);
    }
    for (const owner of owners) {
      const isIt = owner.network === id.network && owner.ifname === id.ifname;
      if (!isIt || !isContainer(id.containerId, owner.containerId)) continue;
      keys.add(key);
      unmet.delete(owner);
    }
  }
  return { keys, isComplete: unmet.size === 0 && named.size === devices.size };
}
