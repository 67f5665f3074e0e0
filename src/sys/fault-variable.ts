// Which variable injects a fault into a plugin?
//
// In a file of its own, because every process checks it at start, and the code that implements it loads more.

/**
 * Makes a plugin's executable fail at one request: `CATENA_FAULT=kernel:3` is the third, and `kernel:` with the
 * words of a request are that one, where the order of requests is not always the same. It is honoured everywhere, also for
 * root, because it only simulates what the kernel may do at any time: refuse a request.
 */
export const FAULT_VARIABLE = 'CATENA_FAULT';
