// Which name does a device have until it has its alias?
//
// The kernel accepts an alias only for a device that exists, and an ADD may be killed before it sets one. So a new device gets a
// name that only its attachment has, by which DEL recognises it.
import { type AttachmentId, digestOf, renderOwner } from '../cni/attachment.ts';

/** Name of the host end of a veth pair, which keeps it; in the format of the reference's random names. */
export function hostEndName(owner: AttachmentId): string {
  return `veth${digestOf(renderOwner(owner)).slice(-8)}`;
}

/** Name of a device in the container until it gets its final one together with the alias: 15 characters, as many as the kernel allows. */
export function interimName(owner: AttachmentId): string {
  return `new${digestOf(renderOwner(owner)).slice(-12)}`;
}
