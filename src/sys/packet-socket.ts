// How are frames of one protocol sent and received on an interface, below IP?
import { closeSync } from 'node:fs';
import { Errno } from './errno.ts';
import { checked, errno, libc, ptr, SystemError } from './libc.ts';

// linux/if_packet.h, bits/socket.h
const AF_PACKET = 17;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
/** struct sockaddr_ll: family, protocol (big endian), index, hardware type, packet type, address length, address */
const SOCKADDR_LL_BYTES = 20;
const MAC_BYTES = 6;
const BROADCAST = new Uint8Array(MAC_BYTES).fill(0xff);

/** Larger than any frame of the protocols that we speak. */
const FRAME_BYTES = 2048;

/** A non-blocking socket for the payload of frames of one protocol. */
export interface PacketSocket {
  /** Sends a payload to every host of the link. @throws SystemError */
  broadcast(payload: Uint8Array): void;
  /** The payload of the next frame that was received; undefined if there is none. @throws SystemError */
  receive(): Uint8Array | undefined;
  close(): void;
}

/**
 * Opens a socket on an interface of the thread's network namespace; it stays in that namespace.
 * @param index the interface
 * @param protocol EtherType, such as 0x0806 for ARP
 * @throws SystemError without CAP_NET_RAW
 */
export function openPacketSocket(index: number, protocol: number): PacketSocket {
  const type = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  // Protocol 0 until it is bound, so that it receives nothing of other interfaces.
  const fd = checked(libc().socket(AF_PACKET, type, 0), () => 'open a packet socket');
  const address = encodeAddress(index, protocol);
  try {
    checked(libc().bind(fd, ptr(address), address.length), () => `bind a packet socket to link ${index}`);
  } catch (thrown) {
    closeSync(fd);
    throw thrown;
  }
  const buffer = new Uint8Array(FRAME_BYTES);
  return {
    broadcast(payload) {
      const sent = libc().sendto(fd, ptr(payload), payload.length, 0, ptr(address), address.length);
      checked(sent, () => `send a frame on link ${index}`);
    },
    receive() {
      const length = Number(libc().recv(fd, ptr(buffer), buffer.length, 0));
      if (length >= 0) return buffer.slice(0, length);
      const problem = errno();
      if (problem === Errno.EAGAIN || problem === Errno.EINTR) return undefined;
      throw new SystemError(`receive frames on link ${index}`, problem);
    },
    close: () => closeSync(fd),
  };
}

function encodeAddress(index: number, protocol: number): Uint8Array {
  const bytes = new Uint8Array(SOCKADDR_LL_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, AF_PACKET, true);
  view.setUint16(2, protocol, false);
  view.setInt32(4, index, true);
  bytes[11] = MAC_BYTES;
  bytes.set(BROADCAST, 12);
  return bytes;
}
