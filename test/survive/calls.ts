// Which system calls did a process make, in terms of what a fault can hit?

/** A process that works for a verb: the command or the daemon, and the process that serves its plugins. */
export type Actor = 'runner' | 'worker';

/** One system call of a process. */
export interface Call {
  readonly syscall: string;
  /** The file that it is about; undefined for a socket or a pipe. */
  readonly path: string | undefined;
  /** The peer, if it is not about a file. */
  readonly peer: 'netlink' | 'other' | undefined;
  /** Whether it changes anything. */
  readonly changes: boolean;
  /** The number of calls of its kind so far, itself included: for all files, and for this one. */
  readonly nth: { readonly ofAll: number; readonly ofPath: number };
  readonly line: string;
}

/** System calls about files that are watched; those that may change something come first. */
const CHANGING = [
  ...['mkdir', 'rename', 'unlink', 'rmdir', 'symlink', 'link', 'write', 'pwrite64', 'ftruncate'],
  ...['flock', 'setxattr', 'removexattr', 'utimensat', 'fsync', 'fdatasync', 'chmod', 'fchmod'],
];
const READING = [
  ...['openat', 'read', 'pread64', 'getdents64', 'statx', 'newfstatat', 'readlink', 'access', 'getxattr'],
];
const SPEAKING = ['sendto', 'sendmsg', 'recvfrom', 'recvmsg'];

/** Everything that is watched, in strace's syntax. */
export const WATCHED = [...CHANGING, ...READING, ...SPEAKING].join(',');

/** Parses strace's lines into calls, in order. */
export function parseCalls(lines: readonly string[]): Call[] {
  const counts = new Map<string, number>();
  const count = (key: string): number => {
    const next = (counts.get(key) ?? 0) + 1;
    counts.set(key, next);
    return next;
  };
  return lines.flatMap(line => {
    const [, syscall, rest] = /^(\w+)\((.*)$/.exec(line) ?? [];
    if (syscall === undefined || rest === undefined) return [];
    const path = pathOf(syscall, rest);
    return {
      syscall,
      path,
      peer: path === undefined ? (/^\d+<NETLINK:/.test(rest) ? 'netlink' : 'other') : undefined,
      changes: CHANGING.includes(syscall) || (syscall === 'openat' && rest.includes('O_CREAT')),
      nth: { ofAll: count(syscall), ofPath: count(`${syscall} ${path}`) },
      line,
    };
  });
}

/** The calls of a worker between two of its replies: while it serves the nth plugin call. */
export function callsOfLink(calls: readonly Call[], n: number): Call[] {
  let replies = 0;
  return calls.filter(call => {
    const during = replies === n;
    if (isReply(call)) replies += 1;
    return during;
  });
}

/** Whether this call is a worker's reply to its runner. */
export function isReply({ syscall, path, peer, line }: Call): boolean {
  return syscall === 'write' && path === undefined && peer !== 'netlink' && line.includes('exitCode');
}

/** Of two paths, the last one: the one that a rename or a link creates. */
function pathOf(syscall: string, rest: string): string | undefined {
  const named = syscall === 'symlink' ? rest.slice(rest.indexOf(', ')) : rest;
  const quoted = [...named.matchAll(/"([/{][^"]*)"(?!\.\.\.)/g)].map(match => match[1]);
  if (['rename', 'link'].includes(syscall)) return quoted.at(-1);
  const [, open] = /^\d+<([/{][^>]*)>/.exec(rest) ?? [];
  return open ?? (SPEAKING.includes(syscall) || /^\d+</.test(rest) ? undefined : quoted[0]);
}
