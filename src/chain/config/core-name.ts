// What are our programs, and the file beside the Bun program, called where they are installed?

/** Name of the Bun program, which stands beside the fronts (plugins/front) and runs what they do not. */
export const CORE_NAME = 'catena-core';

/** Name of the command: a front, or the Bun program itself if it was built without a compiler. */
export const COMMAND_NAME = 'catena';

/** Appended to the path of the Bun program: the file that makes calls start a daemon if none runs (src/daemon/on-demand.ts). */
export const ON_DEMAND_SUFFIX = '.on-demand';
