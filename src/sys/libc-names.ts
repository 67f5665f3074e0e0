// Under which names is the C library loaded? Apart from libc.ts, which needs bun:ffi: the library for Node has these names.

/** In the order in which they are tried: glibc, a plain symbolic link to either, musl. */
export const LIBC_NAMES: readonly string[] = [
  'libc.so.6',
  'libc.so',
  `libc.musl-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.so.1`,
];
