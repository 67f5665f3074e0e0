// What do printed files depend on?

/** What the texts depend on. */
export interface PrintOptions {
  /** Directories of the host. */
  readonly binDir: string;
  readonly confDir: string;
  readonly version: string;
  readonly asDefault: boolean;
  /** Whether the runner is to ask the cluster's API. */
  readonly withAccount: boolean;
  /** The list to install, if there is one. */
  readonly list?: { readonly name: string; readonly text: string };
  /** Directory of this executable, which an image is built from. */
  readonly home: string;
}
