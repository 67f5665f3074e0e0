// How does a thread exchange packets of one protocol with the neighbours of an interface, before that interface has an address?
//
// A packet socket (packet(7)) belongs to the namespace in which it was opened. It sees each packet in addition to the kernel.
import { closeSync } from 'node:fs';
import { Errno } from './errno.ts';
import { AF, checked, errno, lazyLibc, libc, MSG, ptr, SOCK, SystemError } from './libc.ts';
import { attachFilter, type Instruction } from './socket-option.ts';

/** poll.h */
const POLLIN = 1;

/** The hardware address of every neighbour. */
export const BROADCAST = new Uint8Array(6).fill(0xff);

export interface PacketSocket {
  readonly fd: number;
  readonly index: number;
  readonly protocol: number;
}

/**
 * Opens a socket on an interface of the thread's namespace, where it stays.
 * @param index of the interface
 * @param protocol of the packets, as in linux/if_ether.h
 * @param filter which packets are received; default: all
 * @throws SystemError also without CAP_NET_RAW
 */
export function openPacketSocket(
  index: number,
  protocol: number,
  filter?: readonly Instruction[],
): PacketSocket {
  // Protocol 0 receives nothing: not from other interfaces, and nothing before the filter is in place.
  const fd = checked(
    libc().socket(AF.PACKET, SOCK.DGRAM | SOCK.NONBLOCK | SOCK.CLOEXEC, 0),
    () => 'open a packet socket',
  );
  try {
    if (filter) attachFilter(fd, filter);
    const address = linkAddress(index, protocol, new Uint8Array(6));
    checked(
      libc().bind(fd, ptr(address), address.length),
      () => `bind a packet socket to interface ${index}`,
    );
    return { fd, index, protocol };
  } catch (thrown) {
    closeSync(fd);
    throw thrown;
  }
}

export function closePacketSocket({ fd }: PacketSocket): void {
  closeSync(fd);
}

/**
 * Sends a packet, without the header of the link, to a neighbour.
 * @param to its hardware address
 * @throws SystemError
 */
export function sendPacket({ fd, index, protocol }: PacketSocket, packet: Uint8Array, to: Uint8Array): void {
  const address = linkAddress(index, protocol, to);
  checked(
    libc().sendto(fd, ptr(packet), packet.length, MSG.NOSIGNAL, ptr(address), address.length),
    () => 'send a packet',
  );
}

/**
 * The next packet.
 * @returns undefined if there is none
 * @throws SystemError when the interface is gone or down
 */
export function receivePacket(socket: PacketSocket, room: Uint8Array) {
  const address = new Uint8Array(20);
  const length = new Int32Array([address.length]);
  const got = Number(functions().recvfrom(socket.fd, ptr(room), room.length, 0, ptr(address), ptr(length)));
  if (got >= 0) return { bytes: room.slice(0, got), from: address.slice(12, 12 + (address[11] ?? 0)) };
  const problem = errno();
  if (problem === Errno.EAGAIN || problem === Errno.EINTR) return undefined;
  throw new SystemError('receive a packet', problem);
}

/** Waits for a packet. @returns whether there is one before the timeout */
export function awaitPacket({ fd }: PacketSocket, timeoutMs: number): boolean {
  // poll.h: struct pollfd { int fd; short events; short revents; }
  const set = new Int32Array([fd, POLLIN]);
  return functions().poll(ptr(set), 1n, Math.max(0, Math.ceil(timeoutMs))) > 0;
}

const functions = lazyLibc({
  recvfrom: { args: ['i32', 'ptr', 'u64', 'i32', 'ptr', 'ptr'], returns: 'i64' },
  poll: { args: ['ptr', 'u64', 'i32'], returns: 'i32' },
});

/** linux/if_packet.h: struct sockaddr_ll { family; protocol (network order); int ifindex; hatype; pkttype; halen; addr[8]; } */
function linkAddress(index: number, protocol: number, mac: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(20);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, AF.PACKET, true);
  view.setUint16(2, protocol, false);
  view.setInt32(4, index, true);
  bytes[11] = mac.length;
  bytes.set(mac, 12);
  return bytes;
}

/** Unfragmented UDP datagrams to the port; offsets are from the IP header. Same as: `udp dst port <port>` of pcap-filter(7) */
export function udpTo(port: number): readonly Instruction[] {
  const [LDB, LDH, LDX_IP_LENGTH, LDH_INDEXED, JEQ, JSET, RET] = [0x30, 0x28, 0xb1, 0x48, 0x15, 0x45, 0x06];
  return [
    [LDB, 0, 0, 9],
    [JEQ, 0, 6, 17],
    [LDH, 0, 0, 6],
    [JSET, 4, 0, 0x3fff],
    [LDX_IP_LENGTH, 0, 0, 0],
    [LDH_INDEXED, 0, 0, 2],
    [JEQ, 0, 1, port],
    [RET, 0, 0, 0xffff],
    [RET, 0, 0, 0],
  ];
}

/** ICMPv6 messages of a type, without extension headers; offsets are from the IPv6 header. Same as: `icmp6[0] == <type>` of pcap-filter(7) */
export function icmpv6Of(type: number): readonly Instruction[] {
  const [LDB, JEQ, RET] = [0x30, 0x15, 0x06];
  return [
    [LDB, 0, 0, 6],
    [JEQ, 0, 3, 58],
    [LDB, 0, 0, 40],
    [JEQ, 0, 1, type],
    [RET, 0, 0, 0xffff],
    [RET, 0, 0, 0],
  ];
}
