// Which executables do the plugins need, do they exist, and which versions do they support?
import { statSync } from 'node:fs';
import type { Conflist } from '../../chain/config/conflist.ts';
import { findPlugin, isFront, isOwnExecutable } from '../../chain/config/find-plugin.ts';
import { findHighestCommon, type PluginVersions, pluginVersion } from '../../chain/config/plugin-version.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { CniError, describeError } from '../../cni/errors.ts';
import { SPEC_VERSIONS } from '../../cni/result.ts';
import { type InstalledRuntime, refusalOf } from '../runtimes/libcni.ts';
import { atValue, type Path } from './document.ts';
import { type Finding, remembering } from './finding.ts';
import { inPlugin, type PlacedNetwork, type PlacedPlugin } from './network.ts';

/** The executables of a host, each looked up and asked for its versions once. */
export interface Executables {
  /** Whether an executable of that name exists and is not ours. */
  isForeign(type: string): boolean;
  /** Finds executables that are missing, do not answer, or do not support the network's version. */
  judge(network: PlacedNetwork): Promise<Finding[]>;
}

/**
 * The executables in a runtime's plugin directories.
 * @param installed container runtimes of this host, which may refuse the version of a list
 */
export function openExecutables(runtime: Runtime, installed: readonly InstalledRuntime[] = []): Executables {
  const find = remembering((type: string) => lookUp(type, runtime));
  const ask = remembering((type: string) => pluginVersion(type, runtime));
  return {
    isForeign(type) {
      const path = find(type);
      return typeof path === 'string' && !isOurs(path);
    },
    async judge(network) {
      const named = network.plugins.flatMap(placed =>
        placed.named.map(({ type, home }) => ({ type, placed, path: [...home, 'type'] })),
      );
      const missing = named.flatMap(({ type, placed, path }) => {
        const found = find(type);
        return typeof found === 'string'
          ? []
          : inPlugin(placed, path, ['error', 'executable', found.message]);
      });
      if (network.list === undefined) return missing;
      const there = named.filter(({ type }) => typeof find(type) === 'string');
      const refused = installed.flatMap(one => {
        const why = refusalOf(network.document.value, one);
        return why ? [atValue(network.document, ['cniVersion'], ['warning', 'version', why])] : [];
      });
      return [...missing, ...refused, ...(await judgeVersions(network, network.list, there, ask))];
    },
  };
}

/** For callers that only want the files checked. */
export const NO_EXECUTABLES: Executables = { isForeign: () => false, judge: async () => [] };

interface Named {
  readonly type: string;
  readonly placed: PlacedPlugin;
  /** Where the name is in the plugin's configuration. */
  readonly path: Path;
}

async function judgeVersions(
  { document, name }: PlacedNetwork,
  { version }: Conflist,
  named: readonly Named[],
  ask: (type: string) => Promise<PluginVersions>,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const matrix = new Map<string, PluginVersions>();
  for (const { type, placed, path } of named) {
    try {
      matrix.set(type, await ask(type));
    } catch (error) {
      const message = `Cannot get the supported versions of "${type}": ${describeError(error)}`;
      findings.push(inPlugin(placed, path, ['error', 'executable', message]));
    }
  }
  const plugins = [...matrix.values()];
  const deaf = plugins.filter(({ supportedVersions }) => !supportedVersions.includes(version));
  if (!deaf.length) return findings;
  const who = deaf.map(({ type }) => `"${type}"`).join(', ');
  const common = findHighestCommon(plugins);
  const advice =
    common === undefined
      ? 'no version is supported by all plugins'
      : `the highest version that all plugins support is ${common}`;
  const message = `network "${name}" runs with version ${version}, which is not supported by ${who}: ${advice}`;
  const where = ['cniVersion', 'cniVersions'].filter(key => Object.hasOwn(document.value, key)).slice(0, 1);
  findings.push(atValue(document, where, ['error', 'version', message, renderMatrix(plugins)]));
  return findings;
}

/** One line per plugin, with the versions in columns. */
function renderMatrix(plugins: readonly PluginVersions[]): string[] {
  const width = Math.max(...plugins.map(({ type }) => type.length));
  return plugins.map(({ type, supportedVersions }) => {
    const cells = SPEC_VERSIONS.map(version => (supportedVersions.includes(version) ? version : '-    '));
    return `${type.padEnd(width)}  ${cells.join('  ')}`.trimEnd();
  });
}

function lookUp(type: string, { pluginDirs }: Runtime): string | CniError {
  try {
    return findPlugin(type, pluginDirs);
  } catch (error) {
    if (error instanceof CniError) return error;
    throw error;
  }
}

/** A copy of our programs is ours as well; no other file has the size of the Bun program. */
function isOurs(path: string): boolean {
  if (isOwnExecutable(path) || isFront(path)) return true;
  const own = statSync('/proc/self/exe', { throwIfNoEntry: false });
  return own !== undefined && own.size === statSync(path, { throwIfNoEntry: false })?.size;
}
