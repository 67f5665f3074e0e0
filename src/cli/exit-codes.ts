// Which exit codes has the tool, and what do they mean? They do not change: scripts and probes compare them.
import type { AnswerOf } from './answers/kinds.ts';

/** Of every command. */
export const [SUCCESS, FAILURE, WRONG_COMMAND_LINE] = [0, 1, 2];

/** `catena doctor` and `catena why-not` could not look at everything that they had to. */
export const INCOMPLETE = 3;

/** `catena daemon` could not take its socket, or lost it: restarting it would not help. */
export const SOCKET_TAKEN = 3;

/** `catena daemon --ping` and `--status`, for each state of a daemon. */
export const DAEMON_EXIT_CODES = {
  alive: SUCCESS,
  absent: 3,
  'other build': 4,
  silent: 5,
} as const satisfies Record<AnswerOf<'Ping'>['state'], number>;

export interface ExitCode {
  readonly code: number;
  readonly meaning: string;
}

export const COMMON_EXIT_CODES: readonly ExitCode[] = [
  { code: SUCCESS, meaning: 'success' },
  {
    code: FAILURE,
    meaning: 'failure, or what was looked for is not so: standard error or the report says what',
  },
  { code: WRONG_COMMAND_LINE, meaning: 'wrong command line: nothing was done' },
];

const { absent, 'other build': otherBuild, silent } = DAEMON_EXIT_CODES;

/** Those that only some commands have, by the command's name. */
export const MORE_EXIT_CODES: Readonly<Record<string, readonly ExitCode[]>> = {
  daemon: [
    { code: SOCKET_TAKEN, meaning: 'another daemon has the socket' },
    { code: absent, meaning: 'with --ping or --status: no daemon listens' },
    { code: otherBuild, meaning: 'with --ping or --status: the daemon is another build' },
    { code: silent, meaning: 'with --ping or --status: the daemon did not answer in time' },
  ],
  doctor: [
    { code: INCOMPLETE, meaning: 'no error was found, but not everything could be examined' },
    { code: INCOMPLETE, meaning: 'with --traffic: no packet could be sent' },
  ],
  'why-not': [{ code: INCOMPLETE, meaning: 'whether the packet arrives is not known' }],
};
