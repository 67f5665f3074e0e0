// Which file is our packed npm package? The build embeds it in the executable and replaces this file by one with its path.

/** Undefined when run from sources. */
export const PACKED_LIBRARY: string | undefined = undefined;
