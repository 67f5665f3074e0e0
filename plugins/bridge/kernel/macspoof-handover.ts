// How does anti-spoofing pass from our sets to the chains that the reference plugin deletes?
import type { AttachmentId } from '../../../src/cni/attachment.ts';
import type { HandoverMode } from '../../../src/cni/env.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { listAllowed, removeMacspoof } from './macspoof.ts';
import { ensureReferenceMacspoof } from './macspoof-reference.ts';

/** The new chains are added before the elements are removed, so that no frame passes unchecked. @returns what was in our sets */
export function handOverMacspoof(socket: NetlinkSocket, owner: AttachmentId, mode: HandoverMode): string[] {
  const allowed = listAllowed(socket, owner);
  if (mode === 'do') {
    for (const { port, mac } of allowed) ensureReferenceMacspoof(socket, owner, port, mac);
    if (allowed.length) removeMacspoof(socket, owner);
  }
  return allowed.map(({ port }) => `anti-spoofing of "${port}"`);
}
