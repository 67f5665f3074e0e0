// How does a service report its state to systemd?
import { closeSync } from 'node:fs';
import { libc, ptr } from './libc.ts';

/** sys/socket.h */
const AF_UNIX = 1;
const SOCK_DGRAM_CLOEXEC = 2 | 0o2000000;
/** sys/un.h: the size of `sun_path`. */
const PATH_MAX_BYTES = 108;

/**
 * Sends a state such as `READY=1` to the service manager that started this process. Does nothing without one, and ignores
 * a failure to reach it. Same as: `systemd-notify READY=1`
 * @param socket `NOTIFY_SOCKET`: a path, or a name in the abstract namespace that starts with `@`
 */
export function notifyServiceManager(
  state: string,
  socket: string | undefined = process.env.NOTIFY_SOCKET,
): void {
  const name = Buffer.from(socket ?? '');
  if (name.length === 0 || name.length >= PATH_MAX_BYTES) return;
  if (name[0] === '@'.charCodeAt(0)) name[0] = 0;
  const address = new Uint8Array(2 + name.length);
  new DataView(address.buffer).setUint16(0, AF_UNIX, true);
  address.set(name, 2);
  const fd = libc().socket(AF_UNIX, SOCK_DGRAM_CLOEXEC, 0);
  if (fd < 0) return;
  const data = Buffer.from(state);
  libc().sendto(fd, ptr(data), data.length, 0, ptr(address), address.length);
  closeSync(fd);
}
