// Does the very first packet sent after a plugin's reply arrive? The sockets are opened before the plugin is called.
import { closeSync, readFileSync } from 'node:fs';
import { ipToBytes, parseIp } from '../../src/net/ip.ts';
import { getLink } from '../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { Errno } from '../../src/sys/errno.ts';
import { errno, libc, ptr, SystemError } from '../../src/sys/libc.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';

/** bits/socket.h */
const AF_INET6 = 10;
const AF_INET = 2;
const SOCK_DGRAM = 2 | 0o2000000; // with SOCK_CLOEXEC
const SOCK_RAW = 3;
const IPPROTO_SCTP = 132;
const MSG_DONTWAIT = 0x40;
const PORT = 9996;
const ARRIVAL_DEADLINE_MS = 2_000;

/** RFC 4960: ports 5000 and 80, no tag, checksum; one chunk INIT of 20 bytes with tag 1, a window and a stream each way. */
const INIT = withChecksum([
  ...[0x13, 0x88, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0],
  ...[1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1],
]);

/** A namespace with a socket that is already open. */
export interface Peer {
  /** Sends one datagram to all nodes on the interface's link, immediately: no address has to be resolved first. */
  sendToAll(ifname: string): void;
  /** Whether one has arrived by then. */
  receives(): Promise<boolean>;
  /** IPv6 groups that the interface listens to now, 32 digits each. */
  groups(ifname: string): string[];
  close(): void;
}

/** Opens the sockets in the namespace at a path. */
export function openPeer(path: string): Peer {
  const netns = openNetns(path);
  const socket = inNetns(netns, () => libc().socket(AF_INET6, SOCK_DGRAM, 0));
  const rtnl = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  const any = sockaddrOf('::', 0);
  bindSoon(socket, any);
  return {
    sendToAll(ifname) {
      const to = sockaddrOf('ff02::1', getLink(rtnl, ifname).index);
      libc().sendto(socket, ptr(Uint8Array.of(1)), 1, 0, ptr(to), to.length);
    },
    receives: () => receivesBy(socket),
    groups(ifname) {
      const lines = inNetns(netns, () => readFileSync('/proc/thread-self/net/igmp6', 'utf8')).split('\n');
      return lines.flatMap(line => {
        const [, name, group = ''] = line.trim().split(/\s+/);
        return name === ifname ? [group] : [];
      });
    },
    close() {
      rtnl.close();
      closeSync(socket);
      closeNetns(netns);
    },
  };
}

/**
 * A process that a neighbouring test starts has the descriptors of this one until the middle of its exec, when its parent runs on
 * already: what the parent closes since then keeps its port for as long.
 */
function bindSoon(socket: number, address: Uint8Array): void {
  const giveUpAt = performance.now() + ARRIVAL_DEADLINE_MS;
  while (libc().bind(socket, ptr(address), address.length) !== 0) {
    const number = errno();
    if (number !== Errno.EADDRINUSE || performance.now() > giveUpAt)
      throw new SystemError('bind a socket', number);
    Bun.sleepSync(1);
  }
}

/** Sockets for SCTP packets over IPv4, which work without SCTP in the kernel. */
export function openRawPeer(path: string): {
  send(address: string): void;
  receives(deadlineMs?: number): Promise<boolean>;
  close(): void;
} {
  const netns = openNetns(path);
  const socket = inNetns(netns, () => libc().socket(AF_INET, SOCK_RAW, IPPROTO_SCTP));
  closeNetns(netns);
  return {
    send(address) {
      const to = new Uint8Array(16);
      new DataView(to.buffer).setUint16(0, AF_INET, true);
      to.set(ipToBytes(parseIp(address)), 4);
      libc().sendto(socket, ptr(INIT), INIT.length, 0, ptr(to), to.length);
    },
    receives: deadlineMs => receivesBy(socket, deadlineMs),
    close: () => closeSync(socket),
  };
}

async function receivesBy(socket: number, deadlineMs = ARRIVAL_DEADLINE_MS): Promise<boolean> {
  const buffer = new Uint8Array(128);
  const giveUpAt = Date.now() + deadlineMs;
  while (Date.now() < giveUpAt) {
    if (Number(libc().recv(socket, ptr(buffer), buffer.length, MSG_DONTWAIT)) > 0) return true;
    await Bun.sleep(2);
  }
  return false;
}

/** struct sockaddr_in6 */
function sockaddrOf(address: string, scope: number): Uint8Array {
  const bytes = new Uint8Array(28);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, AF_INET6, true);
  view.setUint16(2, PORT);
  bytes.set(ipToBytes(parseIp(address)), 8);
  view.setUint32(24, scope, true);
  return bytes;
}

/** CRC32c, which connection tracking verifies. */
function withChecksum(packet: readonly number[]): Uint8Array {
  let crc = 0xffffffff;
  for (const byte of packet) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  }
  const bytes = Uint8Array.from(packet);
  new DataView(bytes.buffer).setUint32(8, ~crc >>> 0, true);
  return bytes;
}
