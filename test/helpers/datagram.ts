// Does the very first packet sent after a plugin's reply arrive? The sockets are opened before the plugin is called.
import { readFileSync } from 'node:fs';
import { ipToBytes, parseIp } from '../../src/net/ip.ts';
import { getLink } from '../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import {
  bindSocket,
  closeSocket,
  type InetSocket,
  openSocket,
  receiveBytes,
  sendBytesTo,
} from '../../src/sys/inet-socket.ts';
import { libc } from '../../src/sys/libc.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';

/** bits/socket.h */
const AF_INET = 2;
const SOCK_RAW = 3 | 0o2004000; // with SOCK_CLOEXEC and SOCK_NONBLOCK
const IPPROTO_SCTP = 132;
const PORT = 9996;
const ARRIVAL_DEADLINE_MS = 2_000;
const LOOK_EVERY_MS = 2;

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
  const socket = inNetns(netns, () => openSocket('udp', 6));
  const rtnl = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  bindSocket(socket, 'udp', PORT);
  return {
    sendToAll(ifname) {
      const scope = getLink(rtnl, ifname).index;
      sendBytesTo(socket, Uint8Array.of(1), { address: ipToBytes(parseIp('ff02::1')), port: PORT, scope });
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
      closeSocket(socket);
      closeNetns(netns);
    },
  };
}

/** Sockets for SCTP packets over IPv4, which work without SCTP in the kernel. */
export function openRawPeer(path: string): {
  send(address: string): void;
  receives(deadlineMs?: number): Promise<boolean>;
  close(): void;
} {
  const netns = openNetns(path);
  const fd = inNetns(netns, () => libc().socket(AF_INET, SOCK_RAW, IPPROTO_SCTP));
  const socket = { fd, family: 4 } as const;
  closeNetns(netns);
  return {
    send: address => sendBytesTo(socket, INIT, { address: ipToBytes(parseIp(address)), port: 0 }),
    receives: deadlineMs => receivesBy(socket, deadlineMs),
    close: () => closeSocket(socket),
  };
}

async function receivesBy(socket: InetSocket, deadlineMs = ARRIVAL_DEADLINE_MS): Promise<boolean> {
  const buffer = new Uint8Array(128);
  // The last look is after that time: this process itself may not have run for as long.
  for (let left = deadlineMs; left > 0; left -= LOOK_EVERY_MS) {
    if (receiveBytes(socket, buffer)) return true;
    await Bun.sleep(LOOK_EVERY_MS);
  }
  return receiveBytes(socket, buffer) !== undefined;
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
