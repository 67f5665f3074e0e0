// Is an interface still as ADD left it?
import type { ResultInterface } from '../cni/result.ts';
import { type Cidr, renderCidr } from '../net/cidr.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { IFF_UP, type Link } from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { confirm } from '../plugin/confirm.ts';

/** @throws Error naming the first address that is missing from the interface */
export function checkAddresses(socket: NetlinkSocket, link: Link, wanted: readonly Cidr[]): void {
  const present = listAddresses(socket, link.index).map(({ cidr }) => renderCidr(cidr));
  for (const cidr of wanted) {
    const text = renderCidr(cidr);
    if (!present.includes(text)) confirm(`addresses of "${link.name}"`, text, present);
  }
}

/** @throws Error when the hardware address differs from the reported one; no reported address is accepted */
export function checkMac(name: string, reported: ResultInterface | undefined, link: Link): void {
  if (reported?.mac) confirm(`hardware address of ${name}`, reported.mac.toLowerCase(), link.mac);
}

/** The administrative state, `up` or `down`. */
export function stateOf(link: Link): string {
  return link.flags & IFF_UP ? 'up' : 'down';
}
