// Who is an attachment to a DHCP server?
import { type AttachmentId, digestOf } from '../../src/cni/attachment.ts';

/** RFC 4361, section 6.1: the type of an identifier that consists of an IAID and a DUID. */
const NODE_SPECIFIC = 255;
/** RFC 6355: a DUID made from a UUID. */
const DUID_UUID = [0, 4];

/** Who a client is to every DHCPv6 server. */
export interface Identity {
  readonly duid: Uint8Array;
  /** 4 bytes. */
  readonly iaid: Uint8Array;
}

/** Names the attachment's addresses among those of its DUID: 4 bytes. */
export function iaidOf({ network, ifname }: AttachmentId): Uint8Array {
  return Uint8Array.from(Buffer.from(digestOf(`${network}/${ifname}`).slice(-8), 'hex'));
}

/** Names the attachment to every DHCPv6 server: 18 bytes, the same for each of its ADDs. */
export function duidOf({ network, containerId, ifname }: AttachmentId): Uint8Array {
  const uuid = Buffer.from(digestOf(`${containerId}/${network}/${ifname}`), 'hex');
  return Uint8Array.from([...DUID_UUID, ...uuid]);
}

/**
 * The client identifier: 23 bytes, the same for each ADD of the attachment, so that a container which is started again is given
 * its former address, and a lease that was lost with a crash is found again. The reference sends the names themselves, which
 * some servers find too long.
 */
export function clientIdOf(attachment: AttachmentId): Uint8Array {
  return Uint8Array.from([NODE_SPECIFIC, ...iaidOf(attachment), ...duidOf(attachment)]);
}
