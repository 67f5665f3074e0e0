// How do the reference plugins name their packet filter rules?
import type { AttachmentId } from '../cni/attachment.ts';

/** The iptables chain of a container on a network. */
export function attachmentChain({
  network,
  containerId,
}: Pick<AttachmentId, 'network' | 'containerId'>): string {
  return `CNI-${hash(network + containerId).slice(0, 24)}`;
}

/** The prefix of the comment of every nftables rule of a network. */
export function networkKey(network: string): string {
  return hash(network).slice(0, 16);
}

/** The prefix of the comment of every nftables rule of an attachment. */
export function attachmentKey({ network, containerId, ifname }: AttachmentId): string {
  return `${networkKey(network)}-${hash(`${ifname}:${containerId}`).slice(0, 16)}`;
}

function hash(text: string): string {
  return new Bun.CryptoHasher('sha512').update(text).digest('hex');
}
