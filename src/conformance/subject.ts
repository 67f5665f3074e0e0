// Which executable is examined, and with what?
import { basename } from 'node:path';
import type { JsonObject } from '../cni/json.ts';
import type { SpecVersion } from '../cni/version.ts';

/** A plugin and everything that its examination takes. */
export interface Subject {
  /** Absolute path. */
  readonly executable: string;
  /** Configuration of one link, as the plugin gets it. Without one, only what needs none is examined. */
  readonly conf?: JsonObject | undefined;
  /** It stands behind a plugin that makes the interface: it gets a `prevResult`, and the devices that this names. */
  readonly chained: boolean;
  /** What that `prevResult` says, in 1.1.0; where it lies is filled in. A veth pair with an IPv4 address by default. */
  readonly prevResult?: JsonObject | undefined;
  /** A device that the host must have, because the plugin takes it or builds on it. */
  readonly device?: string | undefined;
  /** `CNI_IFNAME` */
  readonly ifname: string;
  /** `CNI_PATH` */
  readonly pluginDirs: readonly string[];
  /** What the plugin finds in its environment besides. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Directories in which files must not stay behind, and what in them is none of the plugin's. */
  readonly watch: { readonly dirs: readonly string[]; readonly skip: readonly string[] };
  /** Time for one call. */
  readonly deadlineMs: number;
}

/** Name of the network when the configuration has none. */
const NETWORK = 'conformance';

/** The configuration for one version: what was given, or the least there is. */
export function confOf({ conf, executable }: Subject, version: SpecVersion): JsonObject {
  return { name: NETWORK, type: basename(executable), ...conf, cniVersion: version };
}
