// Which addresses do the devices of a namespace have?
import { renderCidr } from '../../net/cidr.ts';
import { type Address, listAddresses, RT_SCOPE_LINK } from '../../netlink/rtnl/addr.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import { deviceKey } from './devices.ts';
import type { StateObject } from './object.ts';

/** Assigned addresses, without IPv6 link-local ones, which the kernel adds and removes with their device. */
export function readAddresses(socket: NetlinkSocket, nameOf: (index: number) => string): StateObject[] {
  return listAddresses(socket)
    .filter(address => !isKernelMade(address))
    .map(({ cidr, index }) => {
      const words = `${renderCidr(cidr)} on ${nameOf(index)}`;
      return {
        key: `address ${words}`,
        words,
        parent: deviceKey(nameOf(index)),
        // A loopback device that has been up keeps 127.0.0.1, which the kernel assigned.
        ...(nameOf(index) === 'lo' ? {} : { shape: `IPv${cidr.ip.family} address` }),
      };
    });
}

function isKernelMade({ cidr, scope }: Address): boolean {
  return cidr.ip.family === 6 && scope === RT_SCOPE_LINK;
}
