// Which executable is examined, and with which settings?

import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { loadFile } from '../chain/config/load.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { type JsonObject, parseObject } from '../cni/json.ts';
import type { SpecVersion } from '../cni/version.ts';
import { configurePlugins, offerCapabilities } from '../lab/capabilities.ts';

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

/** A configuration, and whether the plugin comes after another one. */
export interface Sample {
  readonly conf: JsonObject;
  readonly chained: boolean;
}

/** Reads a JSON object from a file. @throws CniError when it contains none */
export function readObject(file: string): JsonObject {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    const reason = (cause as { code?: string }).code ?? String(cause);
    throw new CniError(ErrorCode.ioFailure, `Cannot read "${file}": ${reason}`, { cause });
  }
  return parseObject(text, `"${file}"`);
}

/**
 * The first entry of that type in a conflist, with capability arguments as `catena try` offers them.
 * @throws CniError when the conflist has none
 */
export function findSample(file: string, type: string, capabilities: JsonObject): Sample {
  const list = loadFile(file);
  const at = list.plugins.findIndex(one => one.type === type);
  const entry = configurePlugins(list, offerCapabilities(list, capabilities))[at];
  if (entry === undefined) {
    const types = list.plugins.map(one => `"${one.type}"`).join(', ');
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot find "${type}" in "${file}": its plugins are ${types}`,
    );
  }
  const { conf, runtimeConfig } = entry;
  const given = Object.keys(runtimeConfig).length ? { runtimeConfig } : {};
  return { conf: { ...conf, name: list.name, ...given }, chained: at > 0 };
}
