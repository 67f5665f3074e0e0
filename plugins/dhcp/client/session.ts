// How does a client come to an interface of another namespace, and leave it again?
import { parseMac } from '../../../src/net/mac.ts';
import type { Link } from '../../../src/netlink/rtnl/link.ts';
import { bindSocket, closeSocket, openSocket } from '../../../src/sys/inet-socket.ts';
import { inNetns, type Netns } from '../../../src/sys/netns.ts';
import { closePacketSocket, openPacketSocket, udpTo } from '../../../src/sys/packet-socket.ts';
import { CLIENT_PORT, type Client } from './conversation.ts';

/** linux/if_ether.h */
const ETH_P_IP = 0x0800;

/** The interface through which a client talks. */
export interface Place {
  readonly netns: Netns;
  readonly link: Link;
}

/** Runs a function with a client on the interface; its sockets are closed when the function is done. */
export async function withClient<T>(
  { netns, link }: Place,
  clientId: Uint8Array,
  work: (client: Client) => T | Promise<T>,
): Promise<T> {
  if (!link.mac)
    throw new Error(
      `Cannot use DHCP on "${link.name}": an interface of kind "${link.kind}" has no hardware address`,
    );
  const socket = inNetns(netns, () => openPacketSocket(link.index, ETH_P_IP, udpTo(CLIENT_PORT)));
  try {
    return await work({ socket, mac: parseMac(link.mac), clientId, startedAt: performance.now() });
  } finally {
    closePacketSocket(socket);
  }
}

/**
 * The same where the interface has its address already: keeps the kernel from telling the server, which answers to that address,
 * that the port is unreachable.
 */
export function withAddressedClient<T>(
  place: Place,
  clientId: Uint8Array,
  work: (client: Client) => T | Promise<T>,
): Promise<T> {
  return withClient(place, clientId, async client => {
    const close = inNetns(place.netns, occupyPort);
    try {
      return await work(client);
    } finally {
      close();
    }
  });
}

/** @returns a function that frees the port */
function occupyPort(): () => void {
  const socket = openSocket('udp', 4);
  try {
    bindSocket(socket, 'udp', CLIENT_PORT);
  } catch {
    // A program of the container has the port, which does as well.
  }
  return () => closeSocket(socket);
}
