// As which user is the node examined, and which users does this process's user namespace map?
import { tryRead } from '../files/read-file.ts';

/** The user of this process. */
export interface NodeUser {
  readonly id: number;
  /** The user id that files of all unmapped users appear to have, so that they cannot be told apart. */
  readonly unknown: number | undefined;
}

/** Root in the initial user namespace, which maps every user. */
export const ROOT: NodeUser = { id: 0, unknown: undefined };

/** The id map of the initial user namespace, which maps every user. */
const EVERYBODY = '0 0 4294967295';

/** The user of this process, according to the kernel. */
export function currentUser(read: (path: string) => string | undefined = tryRead): NodeUser {
  const id = process.geteuid?.() ?? 0;
  // user_namespaces(7): first id inside, first id outside, count.
  const map = (read('/proc/self/uid_map') ?? EVERYBODY).trim().split(/\s+/).join(' ');
  if (map === EVERYBODY) return { id, unknown: undefined };
  return { id, unknown: Number(read('/proc/sys/kernel/overflowuid') ?? 65_534) };
}
