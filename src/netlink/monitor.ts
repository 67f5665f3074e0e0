// How are the kernel's notifications received without a process or thread that waits for them?
import { closeLater } from '../sys/close-later.ts';
import { libc, ptr } from '../sys/libc.ts';
import { attachFilter, type Instruction } from '../sys/socket-filter.ts';
import { decodeMessages, type Envelope } from './codec/message.ts';
import { joinGroup, openNetlink } from './socket.ts';

/** sys/socket.h */
const SOL_SOCKET = 1;
const SO_RCVBUFFORCE = 33;

/** A firewall reload on a full node is some MiB of notifications, which arrive faster than they are read. */
const BUFFER_BYTES = 8 << 20;
/** Pause before a socket that has failed is opened again. */
const REOPEN_MS = 100;
/** So many failures to open it in a row are reported. */
const FAILURES_TO_REPORT = 5;

/** What a monitor reports. */
export interface MonitorEvents {
  /** Notifications, in the kernel's order. */
  changed(messages: readonly Envelope[]): void;
  /**
   * Some were lost, because the socket's buffer was full or one could not be read: anything may have changed. Called when the
   * monitor listens again, so that what is looked at now and what is notified from now on leave no gap.
   */
  lost(why: string): void;
  /** It cannot listen at present, and tries again. Called once; `lost` follows when it can. */
  interrupted(why: string): void;
}

interface MonitorOptions {
  readonly filter?: readonly Instruction[];
  readonly bufferBytes?: number;
}

/** Receives notifications until it is closed. */
export interface Monitor {
  close(): void;
}

/**
 * Joins multicast groups of a protocol, in the namespace of this process. The event loop reads the socket when it is readable; the
 * kernel's answer to a full buffer (ENOBUFS) ends the stream, so the socket is opened again.
 * @param groups RTNLGRP_* of linux/rtnetlink.h, NFNLGRP_* of linux/netfilter/nfnetlink.h
 * @param options.filter what is notified of; default: everything
 * @param options.bufferBytes size of the socket's buffer
 * @throws SystemError if the socket cannot be opened
 */
export function openMonitor(
  protocol: number,
  groups: readonly number[],
  events: MonitorEvents,
  options: MonitorOptions = {},
): Monitor {
  let reader: { cancel(): Promise<void> } | undefined;
  let isClosed = false;
  /** @returns why the stream ended */
  const read = async (fd: number): Promise<string> => {
    const own = Bun.file(fd).stream().getReader();
    reader = own;
    try {
      for (;;) {
        const { value, done } = await own.read();
        if (done || isClosed) return 'the socket was closed';
        events.changed(decodeMessages(value));
      }
    } catch (error) {
      await own.cancel().catch(() => {});
      return describeThrown(error);
    } finally {
      // A plain close could wait for a grace period of nf_tables.
      closeLater(fd);
    }
  };
  /** @returns undefined if the monitor has been closed */
  const rejoin = async (): Promise<number | undefined> => {
    for (let failures = 1; ; failures++) {
      await Bun.sleep(REOPEN_MS);
      if (isClosed) return undefined;
      try {
        return join(protocol, groups, options);
      } catch (error) {
        if (failures === FAILURES_TO_REPORT) events.interrupted(describeThrown(error));
      }
    }
  };
  const follow = async (first: number): Promise<void> => {
    for (let fd: number | undefined = first; fd !== undefined; ) {
      const why = await read(fd);
      fd = await rejoin();
      if (fd !== undefined) events.lost(why);
    }
  };
  void follow(join(protocol, groups, options));
  return {
    close() {
      isClosed = true;
      void reader?.cancel().catch(() => {});
    },
  };
}

function describeThrown(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

function join(
  protocol: number,
  groups: readonly number[],
  { bufferBytes = BUFFER_BYTES, filter }: MonitorOptions,
): number {
  const fd = openNetlink(protocol);
  const bytes = new Int32Array([bufferBytes]);
  // Needs CAP_NET_ADMIN in the first user namespace; otherwise the usual size has to be enough.
  libc().setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, ptr(bytes), bytes.byteLength);
  try {
    if (filter) attachFilter(fd, filter);
    for (const group of groups) joinGroup(fd, group);
  } catch (error) {
    closeLater(fd);
    throw error;
  }
  return fd;
}
