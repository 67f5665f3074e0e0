// What is our front (plugins/front)? The build replaces this file by one with the front's size and digest.

/** The front of this build; undefined when run from sources, or built without a compiler. */
export const FRONT: Front | undefined = undefined;

export interface Front {
  readonly bytes: number;
  readonly sha256: string;
  /** The same digest of a file's content, by the runtime's own function: loading node:crypto takes 2.5 ms. */
  digestOf(content: Uint8Array): string;
}
