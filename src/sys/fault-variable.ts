// Which variable makes a link fail on purpose?
//
// By itself, because every start looks at it, and what heeds it loads more.

/**
 * Variable that makes a link's own executable fail at one request: `CATENA_FAULT=kernel:3` is the third. It can do no
 * more than the kernel itself does every day, which is to say no: so it is honoured everywhere, by root too.
 */
export const FAULT_VARIABLE = 'CATENA_FAULT';
