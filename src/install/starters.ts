// What starts the daemon: systemd, the first call, or nothing?
import { join } from 'node:path';
import { CORE_NAME, ON_DEMAND_SUFFIX } from '../chain/config/core-name.ts';
import { findManifest } from './manifest.ts';
import { renderUnits, SERVICE_UNIT, type TextFile } from './units.ts';

/** `none`: it is started by other means, or never. */
export const STARTERS = ['systemd', 'on-demand', 'none'] as const;
export type Starter = (typeof STARTERS)[number];

/**
 * The files that make it so.
 * @param onDemand the text of the file for calls
 */
export function startersFor(
  starter: Starter,
  {
    binDir,
    unitDir,
    onDemand,
  }: { readonly binDir: string; readonly unitDir: string; readonly onDemand: string },
): readonly TextFile[] {
  if (starter === 'systemd') return renderUnits(unitDir, binDir);
  if (starter === 'on-demand')
    return [{ path: join(binDir, `${CORE_NAME}${ON_DEMAND_SUFFIX}`), text: onDemand }];
  return [];
}

/** What an earlier installation chose; undefined if it chose nothing. */
export function installedStarter(binDir: string): { starter: Starter; paths: readonly string[] } | undefined {
  const paths = Object.keys(findManifest(binDir)?.starters ?? {});
  if (paths.some(path => path.endsWith(`/${SERVICE_UNIT}`))) return { starter: 'systemd', paths };
  return paths.length > 0 ? { starter: 'on-demand', paths } : undefined;
}
