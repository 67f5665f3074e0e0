// What is the Bun program called?

/** Name of the Bun program, which stands beside the fronts (plugins/front) and runs what they do not. */
export const CORE_NAME = 'catena-core';
