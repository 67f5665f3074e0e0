// What do printed files depend on?

/** Parameters of the printed texts. */
export interface PrintOptions {
  /** Directories on the host. */
  readonly binDir: string;
  readonly confDir: string;
  readonly version: string;
  readonly asDefault: boolean;
  /** Whether the runner may use the cluster's API. */
  readonly withAccount: boolean;
  /** Whether the daemon serves metrics at the node's address. */
  readonly withMetrics: boolean;
  /** The oldest minor release of Kubernetes 1 that the manifest is for. */
  readonly kubernetes: number;
  /** The conflist to install, if there is one. */
  readonly list?: { readonly name: string; readonly text: string };
  /** Directory of this executable, from which an image is built. */
  readonly home: string;
}
