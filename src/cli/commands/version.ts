// What does `catena version` do?
import { listPluginVersions } from '../../chain/plugin-version.ts';
import { SPEC_VERSIONS } from '../../cni/version.ts';
import type { CommandCall } from '../command.ts';
import { loadTarget, runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/** Prints JSON: the tool's versions, or those of each link, and fails when one does not support the list's. */
export async function run(call: CommandCall): Promise<number> {
  if (!call.positionals.length && call.text('file') === undefined) {
    call.out(`${JSON.stringify({ version: TOOL_VERSION, supportedVersions: SPEC_VERSIONS }, null, 4)}\n`);
    return 0;
  }
  const list = loadTarget(call);
  const plugins = await listPluginVersions(list, runtimeOf(call));
  const usable = plugins.every(({ supportedVersions }) => supportedVersions.includes(list.version));
  call.out(`${JSON.stringify({ network: list.name, cniVersion: list.version, usable, plugins }, null, 4)}\n`);
  return usable ? 0 : 1;
}
