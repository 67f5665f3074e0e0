// What does `catena version` do?
import { inEnvelope } from '../../answers/envelope.ts';
import { findHighestCommon, listPluginVersions } from '../../chain/config/plugin-version.ts';
import { SPEC_VERSIONS } from '../../cni/version.ts';
import type { CommandCall } from '../command.ts';
import { printData } from '../output/print.ts';
import { loadTarget, runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/** Prints the tool's versions as JSON, or those of each plugin; fails if a plugin does not support the conflist's version. */
export async function run(call: CommandCall): Promise<number> {
  if (!call.positionals.length && call.text('file') === undefined) {
    const known = { version: TOOL_VERSION, supportedVersions: SPEC_VERSIONS };
    await printData(call, inEnvelope('ToolVersion', known));
    return 0;
  }
  const { name, version, ...list } = loadTarget(call);
  const plugins = await listPluginVersions({ ...list, name, version }, runtimeOf(call));
  const usable = plugins.every(({ supportedVersions }) => supportedVersions.includes(version));
  const highestCommon = findHighestCommon(plugins) ?? null;
  const shown = { network: name, cniVersion: version, usable, highestCommon, plugins };
  await printData(call, inEnvelope('NetworkVersions', shown));
  return usable ? 0 : 1;
}
