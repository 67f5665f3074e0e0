// What does `catena networks --versions` print?

import { findHighestCommon, listPluginVersions } from '../chain/config/plugin-version.ts';
import { SPEC_VERSIONS } from '../cni/result.ts';
import { renderTable } from '../lab/words.ts';
import type { CommandCall } from './command.ts';
import { findList } from './named-list.ts';
import { printAnswer } from './output/print.ts';
import { runtimeOf } from './target.ts';
import { widthOf } from './terminal/lines.ts';

/** Prints which versions each plugin of a network supports; fails if one does not support that of the list. */
export async function run(call: CommandCall): Promise<number> {
  const { list } = findList(call, call.text('versions') ?? '');
  const { name, version } = list;
  const plugins = await listPluginVersions(list, runtimeOf(call));
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
  await printAnswer(
    call,
    'NetworkVersions',
    shown,
    () => `network ${name}, CNI ${version}, ${words}\n${renderTable(rows, widthOf(call))}`,
  );
  return usable ? 0 : 1;
}
