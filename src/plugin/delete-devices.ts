// How does a plugin delete devices without waiting until the kernel has freed them, and what waits for that?
//
// A request that deletes a device returns after a grace period (10 to 20 ms), in which the kernel only frees what no other program
// can find. Names, addresses, routes and rules of the device have gone in the first millisecond, and then the kernel says so
// (net/core/dev.c, unregister_netdevice_many: RTM_DELLINK; netdev_run_todo waits afterwards, without the rtnl lock). Thus a child
// of the front sends the request on a socket of ours and waits for the rest, which cannot fail, while this process goes on. It is an
// orphan, as a worker that reads its requests without an event loop would leave children unreaped.

import { closeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isFront } from '../chain/config/find-plugin.ts';
import { COMMAND_NAME } from '../cni/directories.ts';
import { CniError, describeError, toCniError } from '../cni/errors.ts';
import {
  encodeMessages,
  NLM_F_ACK,
  NLM_F_REQUEST,
  NLMSG_ERROR,
  type Request,
  readS32,
} from '../netlink/codec.ts';
import { deletionOf, type Link } from '../netlink/rtnl/link.ts';
import { rtm } from '../netlink/rtnl/message.ts';
import {
  exchange,
  isNetlinkError,
  joinGroup,
  NETLINK_ROUTE,
  type NetlinkSocket,
  openNetlink,
  receiveMessages,
  refusalOf,
  setReceiveTimeout,
  tolerating,
} from '../netlink/socket.ts';
import { Errno } from '../sys/errno.ts';
import { FAULT_VARIABLE } from '../sys/fault.ts';
import { SystemError } from '../sys/libc.ts';
import { inNetns } from '../sys/netns.ts';
import type { Call, Done } from './define.ts';
import { throwAll, tryAll } from './steps.ts';

/** linux/rtnetlink.h */
const RTNLGRP_LINK = 1;
/** sys/socket.h. Other families tell what a bridge knows of its ports. */
const AF_UNSPEC = 0;

/** The only request on the socket. */
const SEQ = 1;

/** Longest wait for a sign of the other process, in seconds: it was ended, or gets no processor. */
const PATIENCE_S = 5;

/**
 * Has another process send the request on a socket of ours, which hears of devices being deleted, and waits until all are deleted.
 * @param send starts the process that sends these bytes on the descriptor
 * @param enter opens the socket in the namespace of the devices
 * @returns false if nothing was heard for five seconds, or too much at once: they may be there or not
 * @throws NetlinkError if the kernel refuses the request, SystemError if the socket cannot be opened
 */
export function deleteBy(
  request: Request,
  indexes: readonly number[],
  send: (fd: number, bytes: Uint8Array) => void,
  enter: (open: () => number) => number,
): boolean {
  const fd = enter(() => openNetlink(NETLINK_ROUTE));
  try {
    joinGroup(fd, RTNLGRP_LINK);
    setReceiveTimeout(fd, PATIENCE_S);
    const { type, body } = request;
    const message = encodeMessages([{ type, flags: NLM_F_REQUEST | NLM_F_ACK, seq: SEQ, body }]);
    return exchange(NETLINK_ROUTE, [request], () => {
      send(fd, message);
      return awaitDeletion(fd, request, new Set(indexes));
    });
  } finally {
    closeSync(fd);
  }
}

function awaitDeletion(fd: number, request: Request, left: Set<number>): boolean {
  try {
    while (left.size > 0) {
      for (const message of receiveMessages(fd, NETLINK_ROUTE)) {
        if (message.type === NLMSG_ERROR && message.seq === SEQ) {
          const refusal = refusalOf(message, request);
          if (refusal) throw refusal.toError();
          return true;
        }
        const { type, body } = message;
        // struct ifinfomsg: the device was deleted, or moved to another namespace.
        if (type === rtm('DEL', 'LINK') && body.length >= 8 && body[0] === AF_UNSPEC)
          left.delete(readS32(body, 4));
      }
    }
    return true;
  } catch (thrown) {
    if (thrown instanceof SystemError) return false;
    throw thrown;
  }
}

/** Has a child of the front write a message to its descriptor 3: `--send <message>`, two letters from a to p for each byte. */
export const SEND_FLAG = '--send';

const LETTER_A = 97;

/** Longest wait for the front, which only starts the process that waits for the kernel. */
const START_DEADLINE_MS = 5_000;

/**
 * Deletes the devices, of which some may be gone already. Without a front, or if it does not act, this waits for the kernel.
 * @param socket in the namespace of the devices
 * @param enter opens a socket in that namespace; by default the thread is there
 * @throws NetlinkError if the kernel refuses
 */
export function deleteDevices(
  socket: NetlinkSocket,
  indexes: readonly number[],
  enter: Enter = open => open(),
): void {
  const request = deletionOf(socket, indexes);
  if (request === undefined) return;
  const isDone = deleteByFront(request, indexes, enter);
  if (!isDone) tolerating([Errno.ENODEV], () => socket.request(request));
}

type Enter = Parameters<typeof deleteBy>[3];

/** {@link deleteDevices} in the container's namespace. */
export function deleteInContainer(
  call: Pick<Call, 'container' | 'containerNetns'>,
  indexes: readonly number[],
): void {
  deleteDevices(call.container, indexes, open => inNetns(call.containerNetns, open));
}

function deleteByFront(request: Request, indexes: readonly number[], enter: Enter): boolean {
  const front = findFront();
  if (front === undefined) return false;
  try {
    return deleteBy(request, indexes, (fd, bytes) => sendByFront(front, fd, bytes), enter);
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.ENODEV)) return true;
    // The request of this process tells why, if it fails, too.
    return false;
  }
}

/** Undefined in a program without one, and where a test has the kernel refuse requests of this process. */
function findFront(): string | undefined {
  const front = join(dirname(process.execPath), COMMAND_NAME);
  return !process.env[FAULT_VARIABLE] && isFront(front) ? front : undefined;
}

/** Has a child of the front send a message on a socket. Its own outcome says nothing, so it is not looked at. */
export function sendByFront(front: string, fd: number, bytes: Uint8Array): void {
  const letters = [...bytes].flatMap(byte => [LETTER_A + (byte >> 4), LETTER_A + (byte & 15)]);
  Bun.spawnSync([front, SEND_FLAG, String.fromCharCode(...letters)], {
    stdio: ['ignore', 'ignore', 'ignore', fd],
    env: {},
    cwd: '/',
    timeout: START_DEADLINE_MS,
  });
}

/** A plugin's deferred removal: devices, and the work that must not be done before they are gone. */
interface Removal {
  readonly devices: readonly Link[];
  readonly then: () => Done;
  /** Name of the plugin, for errors; empty if that is obvious. */
  readonly by: string;
  /** Releases the call's resources, at the very end. */
  readonly close: () => void;
  /** Not before all others, and only if none of them failed. */
  readonly isLast?: boolean;
}

/**
 * Deferred removals of several plugins, done together: without a front, the kernel keeps the caller for a grace period (10 to 20 ms)
 * before a device is gone, and as long for a hundred as for one.
 */
export class Removals {
  readonly #waiting: Removal[] = [];

  get waiting(): boolean {
    return this.#waiting.length > 0;
  }

  get indexes(): number[] {
    return this.#waiting.flatMap(({ devices: links }) => links.map(({ index }) => index));
  }

  add(removal: Removal): void {
    this.#waiting.push(removal);
  }

  /**
   * Deletes all waiting devices, then does the work that waited for them, in the order of the calls; none of it if they were not deleted.
   * @param host socket in the namespace of the devices
   * @param removed the devices have already been deleted
   * @throws CniError of the first failure, with the messages of all
   */
  async perform(host: () => NetlinkSocket, removed = false): Promise<void> {
    const problems: unknown[] = [];
    const tryThese = async (steps: readonly (() => Done)[]): Promise<boolean> => {
      const before = problems.length;
      await tryAll(steps).catch(thrown => problems.push(thrown));
      return problems.length === before;
    };
    const last: Removal[] = [];
    // Work that waited may add more removals.
    for (let isDeleted = removed; this.waiting; isDeleted = false) {
      const indexes = isDeleted ? [] : this.indexes;
      const removals = this.#waiting.splice(0);
      last.push(...removals.filter(({ isLast }) => isLast));
      const remove = (): void => (indexes.length ? deleteDevices(host(), indexes) : undefined);
      const others = removals.filter(({ isLast }) => !isLast);
      if (await tryThese([remove])) await tryThese(others.map(removal => () => finish(removal)));
      for (const { close } of others) close();
    }
    if (problems.length === 0) await tryThese(last.map(removal => () => finish(removal)));
    for (const { close } of last) close();
    throwAll(problems);
  }
}

async function finish({ by, then }: Removal): Promise<void> {
  try {
    await then();
  } catch (thrown) {
    if (by === '') throw thrown;
    const { code, details } = toCniError(thrown);
    throw new CniError(code, `${by}: ${describeError(thrown)}`, {
      cause: thrown,
      ...(details ? { details } : {}),
    });
  }
}
