// What does `catena version` do?
import { findHighestCommon, listPluginVersions } from '../../chain/config/plugin-version.ts';
import { SPEC_VERSIONS } from '../../cni/version.ts';
import type { CommandCall } from '../command.ts';
import { renderTable } from '../node/table.ts';
import { printAnswer } from '../output/print.ts';
import { loadTarget, runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/** Prints the tool's versions, or those of each plugin; fails if a plugin does not support the conflist's version. */
export async function run(call: CommandCall): Promise<number> {
  if (!call.positionals.length && call.text('file') === undefined) {
    const known = { version: TOOL_VERSION, supportedVersions: [...SPEC_VERSIONS] };
    const text = () => `catena ${TOOL_VERSION}, CNI ${SPEC_VERSIONS.join(', ')}\n`;
    await printAnswer(call, 'ToolVersion', known, { text });
    return 0;
  }
  const { name, version, ...list } = loadTarget(call);
  const plugins = await listPluginVersions({ ...list, name, version }, runtimeOf(call));
  const usable = plugins.every(({ supportedVersions }) => supportedVersions.includes(version));
  const highestCommon = findHighestCommon(plugins) ?? null;
  const shown = { network: name, cniVersion: version, usable, highestCommon, plugins };
  const words = `${usable ? 'which every plugin supports' : 'which not every plugin supports'}; ${
    highestCommon === null
      ? 'they have no version in common'
      : `the highest version of all is ${highestCommon}`
  }`;
  const rows = plugins.map(({ type, supportedVersions }) => [
    type,
    ...SPEC_VERSIONS.map(one => (supportedVersions.includes(one) ? one : '-')),
  ]);
  await printAnswer(call, 'NetworkVersions', shown, {
    text: () => `network ${name}, CNI ${version}, ${words}\n${renderTable(rows, undefined)}`,
  });
  return usable ? 0 : 1;
}
