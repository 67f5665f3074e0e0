// What do the exit codes of `catena ping` and `catena daemon --status` mean?
import type { Ping } from '../../daemon/ping.ts';

/** Exit code for each state of a daemon. 1 and 2 are those of every command. */
export const DAEMON_EXIT_CODES = {
  alive: 0,
  absent: 3,
  'other build': 4,
  silent: 5,
} as const satisfies Record<Ping['state'], number>;
