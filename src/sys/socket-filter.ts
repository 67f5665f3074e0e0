// How does a socket receive only some of what arrives for it?
import { checked, libc, ptr } from './libc.ts';

/** asm-generic/socket.h */
const SOL_SOCKET = 1;
const SO_ATTACH_FILTER = 26;

/** linux/filter.h: struct sock_filter { __u16 code; __u8 jt; __u8 jf; __u32 k; } */
export type Instruction = readonly [code: number, whenTrue: number, whenFalse: number, k: number];

/** Has the kernel drop what the program does not want, before it reaches the socket. @throws SystemError */
export function attachFilter(fd: number, program: readonly Instruction[]): void {
  const code = new DataView(new ArrayBuffer(program.length * 8));
  for (const [i, [opcode, jt, jf, k]] of program.entries()) {
    code.setUint16(i * 8, opcode, true);
    code.setUint8(i * 8 + 2, jt);
    code.setUint8(i * 8 + 3, jf);
    code.setUint32(i * 8 + 4, k, true);
  }
  const bytes = new Uint8Array(code.buffer);
  // struct sock_fprog { unsigned short len; struct sock_filter *filter; }
  const header = new DataView(new ArrayBuffer(16));
  header.setUint16(0, program.length, true);
  header.setBigUint64(8, BigInt(ptr(bytes)), true);
  const option = new Uint8Array(header.buffer);
  checked(
    libc().setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, ptr(option), option.length),
    () => 'filter what a socket receives',
  );
}
