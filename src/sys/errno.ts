// What does an error number of the kernel mean?

/** Numbers and texts from asm-generic/errno-base.h and errno.h that our system calls and netlink requests return. */
const ERRNO = {
  EPERM: [1, 'operation not permitted'],
  ENOENT: [2, 'no such object'],
  ESRCH: [3, 'no such process or route'],
  EINTR: [4, 'interrupted'],
  EIO: [5, 'input/output error'],
  ENXIO: [6, 'no such device or address'],
  EBADF: [9, 'bad file descriptor'],
  EAGAIN: [11, 'try again'],
  ENOMEM: [12, 'out of memory'],
  EACCES: [13, 'permission denied'],
  EFAULT: [14, 'bad address'],
  EBUSY: [16, 'device or resource busy'],
  EEXIST: [17, 'object exists'],
  EXDEV: [18, 'invalid cross-device link'],
  ENODEV: [19, 'no such device'],
  ENOTDIR: [20, 'not a directory'],
  EISDIR: [21, 'is a directory'],
  EINVAL: [22, 'invalid argument'],
  ENFILE: [23, 'too many open files on this machine'],
  EMFILE: [24, 'too many open files'],
  ENOSPC: [28, 'no space left'],
  EROFS: [30, 'read-only file system'],
  EDOM: [33, 'argument out of domain'],
  ERANGE: [34, 'numerical result out of range'],
  ENAMETOOLONG: [36, 'name too long'],
  ENOTEMPTY: [39, 'directory not empty'],
  ELOOP: [40, 'too many levels of indirection'],
  EXFULL: [54, 'exchange full'],
  EOVERFLOW: [75, 'value too large'],
  ERESTART: [85, 'interrupted by another change'],
  EMSGSIZE: [90, 'message too long'],
  EPROTONOSUPPORT: [93, 'protocol not supported'],
  ESOCKTNOSUPPORT: [94, 'socket type not supported'],
  EOPNOTSUPP: [95, 'operation not supported'],
  EAFNOSUPPORT: [97, 'address family not supported'],
  EADDRINUSE: [98, 'address in use'],
  EADDRNOTAVAIL: [99, 'cannot assign address'],
  ENETDOWN: [100, 'network is down'],
  ENETUNREACH: [101, 'network is unreachable'],
  ENOBUFS: [105, 'no buffer space available'],
  ENOTCONN: [107, 'not connected'],
  ETIMEDOUT: [110, 'timed out'],
  ECONNREFUSED: [111, 'connection refused'],
  EHOSTUNREACH: [113, 'no route to host'],
} as const;

type Name = keyof typeof ERRNO;
const NAMES = Object.keys(ERRNO) as Name[];

/** Error numbers by name, for readable comparisons. */
export const Errno = Object.fromEntries(NAMES.map(name => [name, ERRNO[name][0]])) as {
  readonly [N in Name]: (typeof ERRNO)[N][0];
};

/** `EEXIST`, or `error 42` for an unknown number. */
export function errnoName(errno: number): string {
  return NAMES.find(name => ERRNO[name][0] === errno) ?? `error ${errno}`;
}

/** `object exists (EEXIST)`, or `error 42` for an unknown number. */
export function renderErrno(errno: number): string {
  const name = NAMES.find(one => ERRNO[one][0] === errno);
  return name ? `${ERRNO[name][1]} (${name})` : `error ${errno}`;
}

const SHORTAGES: readonly number[] = [ERRNO.ENFILE[0], ERRNO.EMFILE[0], ERRNO.ENOMEM[0], ERRNO.ENOBUFS[0]];

/**
 * Whether descriptors or memory were short, by the error of a system call, of netlink or of `node:fs`. It says nothing of what was asked
 * for: what could not be looked at is not what is not there.
 */
export function isShortage(thrown: unknown): boolean {
  const { errno } = (thrown ?? {}) as { readonly errno?: unknown };
  return typeof errno === 'number' && SHORTAGES.includes(Math.abs(errno));
}
