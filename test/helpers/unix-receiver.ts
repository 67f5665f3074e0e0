// How does a test receive what is sent to a log daemon's socket?
import { closeSync } from 'node:fs';
import { checked, libc, ptr } from '../../src/sys/libc.ts';

const AF_UNIX = 1;
const SOCK_DGRAM_NONBLOCK = 2 | 0o4000;

/** A bound socket; its file remains when it is closed, as after a crash. */
export interface DatagramReceiver {
  /** Everything received since the last call. */
  take(): string[];
  close(): void;
}

/** Receives datagrams at a path. */
export function receiveDatagrams(path: string): DatagramReceiver {
  const fd = checked(libc().socket(AF_UNIX, SOCK_DGRAM_NONBLOCK, 0), () => 'open a socket');
  const address = Buffer.concat([Buffer.from([AF_UNIX, 0]), Buffer.from(`${path}\0`)]);
  checked(libc().bind(fd, ptr(address), address.length), () => `bind "${path}"`);
  const buffer = new Uint8Array(1 << 18);
  return {
    take() {
      const got: string[] = [];
      for (;;) {
        const length = Number(libc().recv(fd, ptr(buffer), buffer.length, 0));
        if (length < 0) return got;
        got.push(Buffer.from(buffer.subarray(0, length)).toString());
      }
    },
    close: () => closeSync(fd),
  };
}
