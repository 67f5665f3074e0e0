// How does a plugin delete devices without waiting until the kernel has freed them?
//
// A child of the front sends the request, and stays in the kernel for the grace period; the call goes on once the devices are gone
// (netlink/rtnl/link-deletion.ts). Nothing depends on that child then: what it waits for cannot fail. It is an orphan, as a worker
// that reads its requests without an event loop would leave children unreaped.

import { dirname, join } from 'node:path';
import { COMMAND_NAME } from '../chain/config/core-name.ts';
import { isFront } from '../chain/config/own-executable.ts';
import type { Request } from '../netlink/codec.ts';
import { deletionOf } from '../netlink/rtnl/link.ts';
import { LinkDeletion } from '../netlink/rtnl/link-deletion.ts';
import { isNetlinkError, type NetlinkSocket, tolerating } from '../netlink/socket.ts';
import { Errno } from '../sys/errno.ts';
import { FAULT_VARIABLE } from '../sys/fault-variable.ts';
import { inNetns } from '../sys/netns.ts';
import type { Call } from './define.ts';

/** Has a child of the front write a message to its descriptor 3: `--send <message>`, two letters from a to p for each byte. */
export const SEND_FLAG = '--send';

const LETTER_A = 97;

/** Longest wait for the front, which only starts the process that waits for the kernel. */
const START_DEADLINE_MS = 5_000;

/**
 * Deletes the devices, of which some may be gone already. Without a front, or if it does not act, this waits for the kernel.
 * @param socket in the namespace of the devices
 * @param enter runs a function in that namespace; by default the thread is there
 * @throws NetlinkError if the kernel refuses
 */
export function deleteDevices(
  socket: NetlinkSocket,
  indexes: readonly number[],
  enter: (visit: () => LinkDeletion) => LinkDeletion = visit => visit(),
): void {
  const request = deletionOf(socket, indexes);
  if (request === undefined) return;
  const isDone = deleteByFront(request, indexes, enter);
  if (!isDone) tolerating([Errno.ENODEV], () => socket.request(request));
}

/** {@link deleteDevices} in the container's namespace. */
export function deleteInContainer(
  call: Pick<Call, 'container' | 'containerNetns'>,
  indexes: readonly number[],
): void {
  deleteDevices(call.container, indexes, visit => inNetns(call.containerNetns, visit));
}

/** @returns whether the devices are gone */
function deleteByFront(
  request: Request,
  indexes: readonly number[],
  enter: (visit: () => LinkDeletion) => LinkDeletion,
): boolean {
  const front = findFront();
  if (front === undefined) return false;
  let deletion: LinkDeletion | undefined;
  try {
    deletion = enter(() => new LinkDeletion());
    return deletion.perform(request, indexes, (fd, bytes) => sendByFront(front, fd, bytes));
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.ENODEV)) return true;
    // The request of this process tells why, if it fails, too.
    return false;
  } finally {
    deletion?.close();
  }
}

/** Undefined in a program without one, and where a test has the kernel refuse requests of this process. */
function findFront(): string | undefined {
  const front = join(dirname(process.execPath), COMMAND_NAME);
  return !process.env[FAULT_VARIABLE] && isFront(front) ? front : undefined;
}

/** Has a child of the front send a message on a socket. Its own outcome says nothing, so it is not looked at. */
export function sendByFront(front: string, fd: number, bytes: Uint8Array): void {
  Bun.spawnSync([front, SEND_FLAG, lettersOf(bytes)], {
    stdio: ['ignore', 'ignore', 'ignore', fd],
    env: {},
    cwd: '/',
    timeout: START_DEADLINE_MS,
  });
}

function lettersOf(bytes: Uint8Array): string {
  return String.fromCharCode(...[...bytes].flatMap(byte => [LETTER_A + (byte >> 4), LETTER_A + (byte & 15)]));
}
