// How are the kernel's notifications received without a process or thread that waits for them?
import { closeLater } from '../sys/close-later.ts';
import { checked, libc, ptr } from '../sys/libc.ts';
import { decodeMessages, type Envelope } from './codec/message.ts';
import { openNetlink } from './open.ts';

/** linux/netlink.h */
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
/** sys/socket.h */
const SOL_SOCKET = 1;
const SO_RCVBUFFORCE = 33;

/** A firewall reload on a full node is some MiB of notifications, which arrive faster than they are read. */
const BUFFER_BYTES = 8 << 20;
/** Pause before a socket that has failed is opened again. */
const REOPEN_MS = 100;

/** What a monitor reports. */
export interface MonitorEvents {
  /** Notifications, in the kernel's order. */
  changed(messages: readonly Envelope[]): void;
  /** Some were lost because the socket's buffer was full, or one could not be read: anything may have changed. */
  lost(why: string): void;
}

/** Receives notifications until it is closed. */
export interface Monitor {
  close(): void;
}

/**
 * Joins multicast groups of a protocol, in the namespace of this process. The event loop reads the socket when it is readable; the
 * kernel's answer to a full buffer (ENOBUFS) ends the stream, so the socket is opened again.
 * @param groups RTNLGRP_* of linux/rtnetlink.h, NFNLGRP_* of linux/netfilter/nfnetlink.h
 * @throws SystemError if the socket cannot be opened
 */
export function openMonitor(protocol: number, groups: readonly number[], events: MonitorEvents): Monitor {
  let reader: { cancel(): Promise<void> } | undefined;
  let isClosed = false;
  const read = async (fd: number): Promise<void> => {
    const own = Bun.file(fd).stream().getReader();
    reader = own;
    try {
      for (;;) {
        const { value, done } = await own.read();
        if (done || isClosed) return;
        events.changed(decodeMessages(value));
      }
    } catch (error) {
      await own.cancel().catch(() => {});
      if (!isClosed) events.lost((error as Error).message);
    } finally {
      // A plain close could wait for a grace period of nf_tables.
      closeLater(fd);
    }
  };
  const follow = async (first: number): Promise<void> => {
    for (let fd: number | undefined = first; !isClosed; fd = tryJoin(protocol, groups)) {
      if (fd !== undefined) await read(fd);
      if (!isClosed) await Bun.sleep(REOPEN_MS);
    }
  };
  void follow(join(protocol, groups));
  return {
    close() {
      isClosed = true;
      void reader?.cancel().catch(() => {});
    },
  };
}

function tryJoin(protocol: number, groups: readonly number[]): number | undefined {
  try {
    return join(protocol, groups);
  } catch {
    return undefined;
  }
}

function join(protocol: number, groups: readonly number[]): number {
  const fd = openNetlink(protocol);
  const set = (level: number, option: number, value: number): number => {
    const bytes = new Int32Array([value]);
    return libc().setsockopt(fd, level, option, ptr(bytes), bytes.byteLength);
  };
  // Needs CAP_NET_ADMIN in the first user namespace; otherwise the usual size has to be enough.
  set(SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES);
  try {
    for (const group of groups)
      checked(set(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group), () => 'subscribe to changes of the kernel');
  } catch (error) {
    closeLater(fd);
    throw error;
  }
  return fd;
}
