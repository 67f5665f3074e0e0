// What can be told to a socket and learned of it: a filter, an option, the label of a datagram?

import { closeSync } from 'node:fs';
import { Errno } from './errno.ts';
import { AF, checked, errno, lazyLibc, libc, MSG, ptr, SOCK, SOL_SOCKET, SystemError } from './libc.ts';

/** asm-generic/socket.h */
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

/** netinet/in.h */
const IPPROTO_RAW = 255;
const SOL_IP = 0;
const SOL_IPV6 = 41;

const functions = lazyLibc({ getsockopt: { args: ['i32', 'i32', 'i32', 'ptr', 'ptr'], returns: 'i32' } });

/**
 * Queries the IP layer of the thread's namespace, as the tools of the legacy packet filter do.
 * @param value the query and room for the answer, in the option's layout
 * @param what the operation, for the message: `read the table "nat"`
 * @throws SystemError
 */
export function readIpOption(family: 4 | 6, option: number, value: Uint8Array, what: string): void {
  const domain = family === 4 ? AF.INET : AF.INET6;
  const fd = checked(libc().socket(domain, SOCK.RAW | SOCK.CLOEXEC, IPPROTO_RAW), () => 'open a raw socket');
  try {
    const length = new Uint32Array([value.length]);
    const level = family === 4 ? SOL_IP : SOL_IPV6;
    checked(functions().getsockopt(fd, level, option, ptr(value), ptr(length)), () => what);
  } finally {
    closeSync(fd);
  }
}

/** struct msghdr of 64-bit systems, 8 bytes each: name, its length, iov, its length, control, its length, flags. */
const MSGHDR_FIELDS = 7;
const MSGHDR = { iov: 2, iovLength: 3, control: 4, controlLength: 5 };
/** struct cmsghdr with a number: size_t cmsg_len, int cmsg_level, int cmsg_type, int. */
const CMSG_BYTES = 24;
const CMSG_WORDS = { level: 2, type: 3, value: 4 };

const datagramFunctions = lazyLibc({ recvmsg: { args: ['i32', 'ptr', 'i32'], returns: 'i64' } });

interface LabelledDatagram {
  /** Valid until the next one is read. */
  readonly bytes: Uint8Array;
  /** The number of the control message that was asked for; undefined if it came without one. */
  readonly label: number | undefined;
}

/**
 * Reads datagrams of at most `size` bytes, each with the number in its control message of that level and type. Nothing here waits.
 * @returns a function that reads one from a socket, or nothing if none has arrived; it throws a SystemError, such as ENOBUFS if some
 * were lost
 */
export function labelledReader(
  size: number,
  { level, type }: { readonly level: number; readonly type: number },
): (fd: number) => LabelledDatagram | undefined {
  const [bytes, control] = [new Uint8Array(size), new Int32Array(CMSG_BYTES / 4)];
  const [iov, header] = [new BigUint64Array(2), new BigUint64Array(MSGHDR_FIELDS)];
  return fd => {
    // The addresses are of no use to the garbage collector, so each read writes into the arrays that they belong to.
    iov.set([BigInt(ptr(bytes)), BigInt(size)]);
    header[MSGHDR.iov] = BigInt(ptr(iov));
    header[MSGHDR.iovLength] = 1n;
    header[MSGHDR.control] = BigInt(ptr(control));
    header[MSGHDR.controlLength] = BigInt(CMSG_BYTES);
    control.fill(0);
    const length = Number(datagramFunctions().recvmsg(fd, ptr(header), MSG.DONTWAIT));
    if (length < 0) {
      const problem = errno();
      if (problem === Errno.EAGAIN || problem === Errno.EINTR) return undefined;
      throw new SystemError('receive a datagram', problem);
    }
    const isLabelled = control[CMSG_WORDS.level] === level && control[CMSG_WORDS.type] === type;
    return { bytes: bytes.subarray(0, length), label: isLabelled ? control[CMSG_WORDS.value] : undefined };
  };
}
