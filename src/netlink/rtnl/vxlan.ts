// Which ends does a VXLAN tunnel have?
import type { Ip } from '../../net/ip.ts';
import type { linkAttrs } from './link-attrs.ts';

/** The ends of a tunnel that was made without learning. */
export interface Vxlan {
  /** VXLAN network identifier: 24 bits. */
  readonly id: number;
  /** This end's address, from which the packets are sent. */
  readonly local: Ip;
  /** UDP port of every end. */
  readonly port: number;
}

/** What the kernel is told of a new tunnel. Same as: `type vxlan id <id> local <address> dstport <port> nolearning` */
export function vxlanData({ id, local, port }: Vxlan) {
  return { id, ...(local.family === 4 ? { local } : { local6: local }), learning: 0, port };
}

/** The ends of a link of kind `vxlan`; undefined for one of another kind, or without an address of its own. */
export function vxlanOf({
  kind,
  attrs,
}: {
  readonly kind: string;
  readonly attrs: ReturnType<typeof linkAttrs.decode>;
}): (Vxlan & { readonly learning: boolean }) | undefined {
  const data = attrs.linkinfo?.data;
  if (kind !== 'vxlan' || data === undefined || !('port' in data)) return undefined;
  const { id = 0, local = data.local6, port = 0, learning = 0 } = data;
  return local && { id, local, port, learning: learning !== 0 };
}
