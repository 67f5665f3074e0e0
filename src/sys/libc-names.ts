// Which file names can the C library have?

/** In the order in which they are tried: glibc, a plain symbolic link to either, musl. */
export const LIBC_NAMES: readonly string[] = [
  'libc.so.6',
  'libc.so',
  `libc.musl-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.so.1`,
];
