// What is in our front (plugins/front)? The build replaces this file by one with the front's content.

/** The front of this build; undefined when run from sources, or built without a compiler. */
export const FRONT: { readonly bytes: number; readonly base64: string } | undefined = undefined;
