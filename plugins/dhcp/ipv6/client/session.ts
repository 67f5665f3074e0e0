// How does a DHCPv6 client come to an interface of another namespace, and leave it again?
import { describeError } from '../../../../src/cni/errors.ts';
import { type Ip, ipToBytes } from '../../../../src/net/ip.ts';
import {
  type Address,
  IFA_F_DADFAILED,
  IFA_F_TENTATIVE,
  listAddresses,
} from '../../../../src/netlink/rtnl/addr.ts';
import { bindSocket, closeSocket, type InetSocket, openSocket } from '../../../../src/sys/inet-socket.ts';
import { inNetns } from '../../../../src/sys/netns.ts';
import type { OpenPlace } from '../../give-back.ts';
import type { Identity } from '../../identity.ts';
import { isLinkLocal } from '../codec/options.ts';
import { CLIENT_PORT, type Client } from './conversation.ts';

const POLL_MS = 20;

/**
 * Runs a function with a client on the interface, once that has a link-local address; the socket is closed when the function is done.
 * @param giveUpAt in milliseconds of `performance.now()`
 * @throws Error when there is no such address by then, or a program in the namespace has the port of DHCPv6 clients to itself
 */
export async function withClient<T>(
  place: OpenPlace,
  identity: Identity,
  giveUpAt: number,
  work: (client: Client) => T | Promise<T>,
): Promise<T> {
  const { netns, link } = place;
  const address = await awaitLinkLocal(place, giveUpAt);
  const socket = inNetns(netns, () => openClientSocket(address, link.index));
  try {
    return await work({ ...identity, socket, scope: link.index });
  } finally {
    closeSocket(socket);
  }
}

/** The kernel forms it when the interface comes up, and probes for it for a second or two. */
async function awaitLinkLocal({ socket, link }: OpenPlace, giveUpAt: number): Promise<Ip> {
  for (;;) {
    const own = linkLocalAddresses({ socket, link });
    const ready = own.find(isUsable);
    if (ready) return ready.cidr.ip;
    if (performance.now() >= giveUpAt) {
      const why = own.some(({ flags }) => flags & IFA_F_DADFAILED)
        ? 'another host on the network has it'
        : own.length
          ? 'the kernel is still probing for it'
          : 'the kernel has formed none; look at the sysctls "disable_ipv6" and "addr_gen_mode"';
      throw new Error(`Cannot use DHCPv6 on "${link.name}": it has no link-local address, since ${why}`);
    }
    await Bun.sleep(POLL_MS);
  }
}

/** The link-local address of the interface, if it has one that can be used already. */
export function findLinkLocal(place: Pick<OpenPlace, 'socket' | 'link'>): Ip | undefined {
  return linkLocalAddresses(place).find(isUsable)?.cidr.ip;
}

function linkLocalAddresses({ socket, link }: Pick<OpenPlace, 'socket' | 'link'>): Address[] {
  return listAddresses(socket, link.index).filter(({ cidr }) => cidr.ip.family === 6 && isLinkLocal(cidr.ip));
}

function isUsable({ flags }: Address): boolean {
  return !(flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED));
}

function openClientSocket(address: Ip, scope: number): InetSocket {
  const socket = openSocket('udp', 6);
  try {
    bindSocket(socket, 'udp', CLIENT_PORT, { address: ipToBytes(address), scope });
    return socket;
  } catch (cause) {
    closeSocket(socket);
    throw new Error(
      `Cannot use DHCPv6: ${describeError(cause)}; a DHCPv6 client in the container may have the port`,
      { cause },
    );
  }
}
