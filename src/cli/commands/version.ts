// What does `catena version` do?
import { findHighestCommon, listPluginVersions } from '../../chain/config/plugin-version.ts';
import { SPEC_VERSIONS } from '../../cni/version.ts';
import type { CommandCall } from '../command.ts';
import { loadTarget, runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/** Prints the tool's versions as JSON, or those of each plugin; fails if a plugin does not support the conflist's version. */
export async function run(call: CommandCall): Promise<number> {
  if (!call.positionals.length && call.text('file') === undefined) {
    call.out(`${JSON.stringify({ version: TOOL_VERSION, supportedVersions: SPEC_VERSIONS }, null, 4)}\n`);
    return 0;
  }
  const { name, version, ...list } = loadTarget(call);
  const plugins = await listPluginVersions({ ...list, name, version }, runtimeOf(call));
  const usable = plugins.every(({ supportedVersions }) => supportedVersions.includes(version));
  const highestCommon = findHighestCommon(plugins) ?? null;
  const shown = { network: name, cniVersion: version, usable, highestCommon, plugins };
  call.out(`${JSON.stringify(shown, null, 4)}\n`);
  return usable ? 0 : 1;
}
