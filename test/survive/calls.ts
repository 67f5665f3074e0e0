// What did a process ask of the kernel, in terms of what a fault may hit?

/** Somebody who works for a verb: the command or the daemon, the process that serves its links, the one that deletes devices. */
export type Actor = 'runner' | 'worker' | 'reaper';

/** One request of a process to the kernel. */
export interface Call {
  readonly syscall: string;
  /** The file that it is about; undefined for a socket or a pipe. */
  readonly path: string | undefined;
  /** To whom it speaks, when that is not a file. */
  readonly peer: 'netlink' | 'other' | undefined;
  /** Whether something is different afterwards. */
  readonly changes: boolean;
  /** How many calls of its kind came before it, itself included: of all files, and of this one. */
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

/** Everything that is watched, as strace has it. */
export const WATCHED = [...CHANGING, ...READING, ...SPEAKING].join(',');

/** The calls in the lines of strace, in order. */
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

/** What a worker asks from one of its replies to the next: while it serves one link, the nth that is called. */
export function callsOfLink(calls: readonly Call[], n: number): Call[] {
  let replies = 0;
  return calls.filter(call => {
    const during = replies === n;
    if (isReply(call)) replies += 1;
    return during;
  });
}

/** Whether a worker answers its runner by it. */
export function isReply({ syscall, path, peer, line }: Call): boolean {
  return syscall === 'write' && path === undefined && peer !== 'netlink' && line.includes('exitCode');
}

/** Of two paths the last: what a rename or a link makes. */
function pathOf(syscall: string, rest: string): string | undefined {
  const named = syscall === 'symlink' ? rest.slice(rest.indexOf(', ')) : rest;
  const quoted = [...named.matchAll(/"([/{][^"]*)"(?!\.\.\.)/g)].map(match => match[1]);
  if (['rename', 'link'].includes(syscall)) return quoted.at(-1);
  const [, open] = /^\d+<([/{][^>]*)>/.exec(rest) ?? [];
  return open ?? (SPEAKING.includes(syscall) || /^\d+</.test(rest) ? undefined : quoted[0]);
}
