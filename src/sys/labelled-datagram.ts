// How is a datagram read together with a number that the kernel attaches to it?
import { FFIType } from 'bun:ffi';
import { Errno } from './errno.ts';
import { errno, loadLibc, ptr, SystemError } from './libc.ts';

/** sys/socket.h */
const MSG_DONTWAIT = 0x40;
/** struct msghdr of 64-bit systems, 8 bytes each: name, its length, iov, its length, control, its length, flags. */
const MSGHDR_FIELDS = 7;
const MSGHDR = { iov: 2, iovLength: 3, control: 4, controlLength: 5 };
/** struct cmsghdr with a number: size_t cmsg_len, int cmsg_level, int cmsg_type, int. */
const CMSG_BYTES = 24;
const CMSG_WORDS = { level: 2, type: 3, value: 4 };

interface Functions {
  recvmsg(fd: number, message: ReturnType<typeof ptr>, flags: number): bigint;
}

let loaded: Functions | undefined;

/** A datagram. */
export interface LabelledDatagram {
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
    const length = Number(functions().recvmsg(fd, ptr(header), MSG_DONTWAIT));
    if (length < 0) {
      const problem = errno();
      if (problem === Errno.EAGAIN || problem === Errno.EINTR) return undefined;
      throw new SystemError('receive a datagram', problem);
    }
    const isLabelled = control[CMSG_WORDS.level] === level && control[CMSG_WORDS.type] === type;
    return { bytes: bytes.subarray(0, length), label: isLabelled ? control[CMSG_WORDS.value] : undefined };
  };
}

function functions(): Functions {
  const { i32, ptr: pointer, i64 } = FFIType;
  loaded ??= loadLibc<Functions>({ recvmsg: { args: [i32, pointer, i32], returns: i64 } });
  return loaded;
}
