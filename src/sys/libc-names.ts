// Under which names is the C library loaded, and how is it called by what also runs under Node? Apart from libc.ts, which needs bun:ffi.

import type * as FfiModule from 'bun:ffi';

/** In the order in which they are tried: glibc, a plain symbolic link to either, musl. */
export const LIBC_NAMES: readonly string[] = [
  'libc.so.6',
  'libc.so',
  `libc.musl-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.so.1`,
];

/** Functions of the C library; undefined under Node, which has no bun:ffi, and where the library cannot be loaded. */
export function findInLibc<S extends Record<string, FfiModule.FFIFunction>>(symbols: S) {
  if (typeof Bun === 'undefined') return undefined;
  const { dlopen, ptr } = import.meta.require('bun:ffi') as typeof FfiModule;
  for (const name of LIBC_NAMES) {
    try {
      return { ...dlopen(name, symbols).symbols, ptr };
    } catch {
      // This system may use the next name.
    }
  }
  return undefined;
}
