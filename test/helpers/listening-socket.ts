// How does a test act as the service manager that keeps a socket for a daemon (sd_listen_fds(3))?

import fs from 'node:fs';
import { startSocketOf, wireOf } from '../../src/daemon/protocol.ts';
import { checked, lazyLibc, libc, ptr } from '../../src/sys/libc.ts';

const AF_UNIX = 1;
const SOCK_STREAM_NONBLOCK = 1 | 0o4000;

/** A listening socket under both names of a daemon. */
export interface KeptSocket {
  readonly fd: number;
  close(): void;
}

/** Listens as catena.socket does. */
export function keepSocket(socket: string): KeptSocket {
  const start = startSocketOf(socket);
  const fd = checked(libc().socket(AF_UNIX, SOCK_STREAM_NONBLOCK, 0), () => 'open a socket');
  const address = Buffer.concat([Buffer.from([AF_UNIX, 0]), Buffer.from(`${start}\0`)]);
  checked(libc().bind(fd, ptr(address), address.length), () => `bind "${start}"`);
  const { listen } = lazyLibc({ listen: { args: ['i32', 'i32'], returns: 'i32' } })();
  checked(listen(fd, 128), () => `listen on "${start}"`);
  for (const name of [socket, wireOf(socket)]) fs.symlinkSync(start, name);
  return { fd, close: () => fs.closeSync(fd) };
}

/** The command line that starts a program as the service manager does: the socket is descriptor 3. */
export function activated(argv: readonly string[], notify: string): string[] {
  // The variable names the process that it is for, and exec keeps the process id.
  const start = 'LISTEN_PID=$$ LISTEN_FDS=1 NOTIFY_SOCKET="$0" exec "$@"';
  return ['sh', '-c', start, notify, ...argv];
}
