// What does an error number of the kernel mean?

/** Numbers and texts from asm-generic/errno-base.h and errno.h that our system calls and netlink requests return. */
const ERRNO: Readonly<Record<number, readonly [name: string, text: string]>> = {
  1: ['EPERM', 'operation not permitted'],
  2: ['ENOENT', 'no such object'],
  4: ['EINTR', 'interrupted'],
  5: ['EIO', 'input/output error'],
  6: ['ENXIO', 'no such device or address'],
  9: ['EBADF', 'bad file descriptor'],
  11: ['EAGAIN', 'try again'],
  12: ['ENOMEM', 'out of memory'],
  13: ['EACCES', 'permission denied'],
  14: ['EFAULT', 'bad address'],
  16: ['EBUSY', 'device or resource busy'],
  17: ['EEXIST', 'object exists'],
  19: ['ENODEV', 'no such device'],
  20: ['ENOTDIR', 'not a directory'],
  21: ['EISDIR', 'is a directory'],
  22: ['EINVAL', 'invalid argument'],
  24: ['EMFILE', 'too many open files'],
  28: ['ENOSPC', 'no space left'],
  30: ['EROFS', 'read-only file system'],
  33: ['EDOM', 'argument out of domain'],
  34: ['ERANGE', 'numerical result out of range'],
  36: ['ENAMETOOLONG', 'name too long'],
  39: ['ENOTEMPTY', 'directory not empty'],
  40: ['ELOOP', 'too many levels of indirection'],
  75: ['EOVERFLOW', 'value too large'],
  85: ['ERESTART', 'interrupted by another change'],
  90: ['EMSGSIZE', 'message too long'],
  93: ['EPROTONOSUPPORT', 'protocol not supported'],
  94: ['ESOCKTNOSUPPORT', 'socket type not supported'],
  95: ['EOPNOTSUPP', 'operation not supported'],
  97: ['EAFNOSUPPORT', 'address family not supported'],
  98: ['EADDRINUSE', 'address in use'],
  99: ['EADDRNOTAVAIL', 'cannot assign address'],
  100: ['ENETDOWN', 'network is down'],
  101: ['ENETUNREACH', 'network is unreachable'],
  105: ['ENOBUFS', 'no buffer space available'],
  107: ['ENOTCONN', 'not connected'],
  110: ['ETIMEDOUT', 'timed out'],
  111: ['ECONNREFUSED', 'connection refused'],
  113: ['EHOSTUNREACH', 'no route to host'],
};

/** Error numbers by name, for readable comparisons. */
export const Errno = {
  EPERM: 1,
  ENOENT: 2,
  EINTR: 4,
  EIO: 5,
  EAGAIN: 11,
  EBUSY: 16,
  EEXIST: 17,
  ENODEV: 19,
  EINVAL: 22,
  ERESTART: 85,
  EMSGSIZE: 90,
  EOPNOTSUPP: 95,
  EADDRINUSE: 98,
  EADDRNOTAVAIL: 99,
  ENETUNREACH: 101,
  EHOSTUNREACH: 113,
} as const;

/** `EEXIST`, or `error 42` for an unknown number. */
export function errnoName(errno: number): string {
  return ERRNO[errno]?.[0] ?? `error ${errno}`;
}

/** `object exists (EEXIST)`, or `error 42` for an unknown number. */
export function renderErrno(errno: number): string {
  const known = ERRNO[errno];
  return known ? `${known[1]} (${known[0]})` : `error ${errno}`;
}
