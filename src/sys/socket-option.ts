// What does the kernel report through a socket option?
import { FFIType } from 'bun:ffi';
import { closeSync } from 'node:fs';
import { checked, libc, loadLibc, ptr } from './libc.ts';

/** bits/socket.h, netinet/in.h */
const AF_INET = 2;
const AF_INET6 = 10;
const SOCK_RAW_CLOEXEC = 3 | 0o2000000;
const IPPROTO_RAW = 255;
const SOL_IP = 0;
const SOL_IPV6 = 41;

interface Functions {
  getsockopt(
    fd: number,
    level: number,
    option: number,
    value: ReturnType<typeof ptr>,
    length: ReturnType<typeof ptr>,
  ): number;
}

let loaded: Functions | undefined;

/**
 * Queries the IP layer of the thread's namespace, as the tools of the legacy packet filter do.
 * @param value the query and room for the answer, in the option's layout
 * @param what the operation, for the message: `read the table "nat"`
 * @throws SystemError
 */
export function readIpOption(family: 4 | 6, option: number, value: Uint8Array, what: string): void {
  const domain = family === 4 ? AF_INET : AF_INET6;
  const fd = checked(libc().socket(domain, SOCK_RAW_CLOEXEC, IPPROTO_RAW), () => 'open a raw socket');
  try {
    const length = new Uint32Array([value.length]);
    const level = family === 4 ? SOL_IP : SOL_IPV6;
    checked(functions().getsockopt(fd, level, option, ptr(value), ptr(length)), () => what);
  } finally {
    closeSync(fd);
  }
}

/** Rarely needed, so it is not among the functions that every plugin loads. */
function functions(): Functions {
  const { i32, ptr: pointer } = FFIType;
  loaded ??= loadLibc<Functions>({
    getsockopt: { args: [i32, i32, i32, pointer, pointer], returns: i32 },
  });
  return loaded;
}
