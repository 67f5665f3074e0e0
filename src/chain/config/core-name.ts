// What are our programs called where they are installed?

/** Name of the Bun program, which stands beside the fronts (plugins/front) and runs what they do not. */
export const CORE_NAME = 'catena-core';

/** Name of the command: a front, or the Bun program itself if it was built without a compiler. */
export const COMMAND_NAME = 'catena';
