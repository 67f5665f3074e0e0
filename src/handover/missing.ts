// What does DEL of an attachment need that a set of executables does not have?
import type { HandedAttachment } from './attachments.ts';

/** Runners keep their attachments in records of their own, which no other executable reads. */
const RUNNERS = ['catena', 'multus'];

/**
 * Why other executables cannot delete the attachment at all; undefined if they may be able to.
 * @param heirs the other executables, by plugin name
 * @param place name of their location, for the message
 */
export function findMissing(
  { types }: Pick<HandedAttachment, 'types'>,
  heirs: ReadonlyMap<string, string>,
  place: string,
): string | undefined {
  const missing = types.filter(type => !heirs.has(type));
  const runner = missing.find(type => RUNNERS.includes(type));
  if (runner !== undefined) {
    return `"${runner}" attached its networks and only it can detach them: delete the container first`;
  }
  if (!missing.length) return undefined;
  return `there is no ${missing.map(type => `"${type}"`).join(' and no ')} in ${place} to delete it`;
}
