// Which executable is examined, and with which settings?
import { basename } from 'node:path';
import type { JsonObject } from '../cni/json.ts';
import type { SpecVersion } from '../cni/version.ts';

/** A plugin and everything needed to examine it. */
export interface Subject {
  /** Absolute path. */
  readonly executable: string;
  /** Configuration of one plugin, as it receives it. Without it, only rules that need none are examined. */
  readonly conf?: JsonObject | undefined;
  /** True for a plugin that comes after one that makes the interface: it gets a `prevResult`, and the devices named there. */
  readonly chained: boolean;
  /** The content of that `prevResult`, in 1.1.0; its paths are filled in. By default a veth pair with an IPv4 address. */
  readonly prevResult?: JsonObject | undefined;
  /** A device that must exist on the host, because the plugin moves it or builds on it. */
  readonly device?: string | undefined;
  /**
   * Name of a bridge that must exist on the host; the container has an interface on it, without addresses, as an IPAM plugin finds
   * it that asks a server of the network.
   */
  readonly bridge?: string | undefined;
  /** An executable that runs on the host during the examination, such as that server. Absolute path. */
  readonly beside?: string | undefined;
  /** `CNI_IFNAME` */
  readonly ifname: string;
  /** `CNI_PATH` */
  readonly pluginDirs: readonly string[];
  /** Additional environment variables of the plugin. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Directories in which no files may be left behind, and paths in them that are not the plugin's. */
  readonly watch: { readonly dirs: readonly string[]; readonly skip: readonly string[] };
  /** Time for one call. */
  readonly deadlineMs: number;
}

/** Name of the network when the configuration has none. */
const NETWORK = 'conformance';

/** The configuration for one version: the given one, or the minimum. */
export function confOf({ conf, executable }: Subject, version: SpecVersion): JsonObject {
  return { name: NETWORK, type: basename(executable), ...conf, cniVersion: version };
}
