// What changes in the network namespaces to which devices of this one lead?
//
// One socket hears of all of them and keeps none of them alive: those for which this namespace has a number, which the kernel gives to
// each namespace that the other end of one of its devices is in. Only the control message of a datagram says which one it is about.
import { closeSync } from 'node:fs';
import { labelledReader } from '../sys/labelled-datagram.ts';
import { checked, libc, ptr } from '../sys/libc.ts';
import { attachFilter, type Instruction } from '../sys/socket-filter.ts';
import { decodeMessages, type Envelope } from './codec/message.ts';
import { openNetlink } from './socket.ts';

/** linux/netlink.h */
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
/** Linux 4.2 */
const NETLINK_LISTEN_ALL_NSID = 8;

/** How often the socket is looked at: a stream of the event loop would not have the control messages. */
const EVERY_MS = 250;
/** A notification is less than this. */
const MOST_BYTES = 1 << 15;
/** More datagrams at one look than this are a namespace in which things change all the time. */
const MOST_AT_ONCE = 1_000;
/** Such a time is waited for without listening. */
const PAUSE_MS = 10_000;

/** Messages of one namespace, by the number that it has here. */
export interface PeerMessages {
  readonly nsid: number;
  readonly messages: readonly Envelope[];
}

/** What the monitor reports. */
export interface PeerMonitorEvents {
  /** Notifications since the last look, in the kernel's order. */
  changed(notifications: readonly PeerMessages[]): void;
  /** Some were not read, and it listens again. */
  lost(why: string): void;
}

/**
 * Listens until it is closed. Containers decide how much there is to hear, so what it costs is limited.
 * @param groups RTNLGRP_* of linux/rtnetlink.h
 * @param filter what is notified of
 * @returns a function that closes it
 * @throws SystemError if the socket cannot be opened, or the kernel is too old
 */
export function openPeerMonitor(
  protocol: number,
  groups: readonly number[],
  filter: readonly Instruction[],
  events: PeerMonitorEvents,
): () => void {
  const read = labelledReader(MOST_BYTES, { level: SOL_NETLINK, type: NETLINK_LISTEN_ALL_NSID });
  let fd: number | undefined = listen(protocol, groups, filter);
  let reopenAt = 0;
  let why = '';
  const pause = (reason: string): void => {
    if (fd !== undefined) closeSync(fd);
    fd = undefined;
    [why, reopenAt] = [reason, performance.now() + PAUSE_MS];
  };
  const readAll = (from: number): PeerMessages[] => {
    const found: PeerMessages[] = [];
    for (let i = 0; i < MOST_AT_ONCE; i++) {
      const datagram = read(from);
      if (datagram === undefined) return found;
      const { bytes, label: nsid } = datagram;
      // What this namespace itself notifies has no label.
      if (nsid !== undefined) found.push({ nsid, messages: decodeMessages(bytes) });
    }
    pause(`more than ${MOST_AT_ONCE} notifications at once`);
    return found;
  };
  const look = (): void => {
    try {
      if (fd === undefined) {
        if (performance.now() < reopenAt) return;
        fd = listen(protocol, groups, filter);
        events.lost(why);
      }
      const found = readAll(fd);
      if (found.length > 0) events.changed(found);
    } catch (error) {
      pause(error instanceof Error ? error.message : String(error));
    }
  };
  const timer = setInterval(look, EVERY_MS);
  timer.unref();
  return () => {
    clearInterval(timer);
    if (fd !== undefined) closeSync(fd);
    fd = undefined;
  };
}

function listen(protocol: number, groups: readonly number[], filter: readonly Instruction[]): number {
  const fd = openNetlink(protocol);
  const options = [
    [NETLINK_LISTEN_ALL_NSID, 1],
    ...groups.map(group => [NETLINK_ADD_MEMBERSHIP, group] as const),
  ] as const;
  try {
    attachFilter(fd, filter);
    for (const [option, value] of options) {
      const bytes = new Int32Array([value]);
      checked(libc().setsockopt(fd, SOL_NETLINK, option, ptr(bytes), bytes.byteLength), () => {
        return 'subscribe to changes of other network namespaces';
      });
    }
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return fd;
}
