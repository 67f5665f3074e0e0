// What can be printed, and what do printed files depend on?

export const PRINTABLE = ['systemd', 'daemonset', 'containerfile', 'crds', 'alerts', 'board'] as const;
export type Printable = (typeof PRINTABLE)[number];
/** What can be printed about a cluster with multus. */
export const SWITCH_FROM_MULTUS = 'switch-from-multus';

export interface PrintOptions {
  /** Directories on the host. */
  readonly binDir: string;
  readonly confDir: string;
  readonly version: string;
  readonly asDefault: boolean;
  /** Whether the runner may use the cluster's API. */
  readonly withAccount: boolean;
  /** Whether the kind of network definitions comes along. */
  readonly withDefinitions: boolean;
  /** The image that nodes run. */
  readonly image: string;
  /** Whether the daemon serves metrics at the node's address. */
  readonly withMetrics: boolean;
  /** The oldest minor release of Kubernetes 1 that the objects are for. */
  readonly kubernetes: number;
  /** Name of the list in its directory, unless it follows from the network's. */
  readonly confName?: string;
  /** Names of executables that replace those of other packages. */
  readonly replaced?: readonly string[];
  /** The conflist to install, if there is one. */
  readonly list?: { readonly name: string; readonly text: string };
  /** Directory of this executable, from which an image is built. */
  readonly home: string;
}
