// What are the Bun program and the file beside it called?

/** Name of the Bun program, which stands beside the fronts (plugins/front) and runs what they do not. */
export const CORE_NAME = 'catena-core';

/** Appended to the path of the Bun program: the file that makes calls start a daemon if none runs (src/daemon/on-demand.ts). */
export const ON_DEMAND_SUFFIX = '.on-demand';
