// What is our front (plugins/front)? The build replaces this file by one with the front's size and digest.

/** The front of this build; undefined when run from sources, or built without a compiler. */
export const FRONT: { readonly bytes: number; readonly sha256: string } | undefined = undefined;
