// Which attachments does a change concern?

import type { AttachmentId } from '../cni/attachment.ts';
import { isObject } from '../cni/json.ts';
import { isContainer } from '../journal/generation.ts';
import type { WatchedAttachment } from './attachments.ts';
import type { Hint, OtherEnd } from './hint.ts';

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
 * Whether every attachment is looked at. Elements that name none of them are no reason if elements of owners left the same table at the
 * same moment: a DEL removes its own, and what counts them.
 * @returns undefined: no
 */
export function chooseSweep(hints: readonly Hint[]): 'likely' | 'possible' | undefined {
  const owned = new Set(hints.flatMap(hint => (hint.of === 'owner' ? hint.table : [])));
  let chosen: 'possible' | undefined;
  for (const hint of hints) {
    if (hint.of === 'all' && hint.isLikely) return 'likely';
    if (hint.of === 'all' || (hint.of === 'shared' && !owned.has(hint.table))) chosen = 'possible';
  }
  return chosen;
}

/**
 * Names of devices whose other end is not as an ADD made it.
 * @param known the attachments as last listed. A device of none of them may be that of an ADD that has not ended
 */
export function devicesChangedInside(hints: readonly Hint[], known: Attachments): Set<string> {
  const inside = hints.flatMap(hint => (hint.of === 'inside' ? hint : []));
  const ends = inside.filter(({ end }) => end !== undefined).map(({ name }) => name);
  const owners = ownersOf(new Set(ends), known);
  const isChanged = ({ name, end }: (typeof inside)[number]) =>
    end === undefined || !(owners.get(name) ?? []).every(one => isAsMade(one, end)) || !end.isUp;
  return new Set(inside.filter(isChanged).map(({ name }) => name));
}

function ownersOf(
  devices: ReadonlySet<string>,
  known: Attachments,
): ReadonlyMap<string, readonly WatchedAttachment[]> {
  const owners = new Map<string, WatchedAttachment[]>();
  if (devices.size === 0) return owners;
  for (const one of known.values()) {
    for (const name of one.devices)
      if (devices.has(name)) owners.set(name, [...(owners.get(name) ?? []), one]);
  }
  return owners;
}

/** Whether the interface is what the result of its ADD says. */
function isAsMade(
  { known: { result } }: WatchedAttachment,
  { name, isUp, mac, hasOtherMtu }: OtherEnd,
): boolean {
  const interfaces = Array.isArray(result?.interfaces) ? result.interfaces.filter(isObject) : [];
  const own = interfaces.find(one => one.name === name && one.sandbox);
  if (own === undefined || !isUp || hasOtherMtu) return false;
  return typeof own.mac !== 'string' || own.mac === '' || own.mac.toLowerCase() === mac;
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
  for (const { key, id, devices: own, isCheckedInParts } of attachments.values()) {
    const add = () => isCheckedInParts || keys.add(key);
    for (const device of own) {
      if (!devices.has(device)) continue;
      add();
      named.add(device);
    }
    for (const owner of owners) {
      const isIt = owner.network === id.network && owner.ifname === id.ifname;
      if (!isIt || !isContainer(id.containerId, owner.containerId)) continue;
      add();
      unmet.delete(owner);
    }
  }
  return { keys, isComplete: unmet.size === 0 && named.size === devices.size };
}
