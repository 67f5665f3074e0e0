// How does systemd learn about our units?
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CORE_NAME, ON_DEMAND_SUFFIX } from '../chain/config/core-name.ts';
import { findManifest } from './files.ts';
import { renderUnits, SERVICE_UNIT, SOCKET_UNIT, type TextFile } from './units.ts';

/** sd_booted(3) */
const BOOTED = '/run/systemd/system';
const DEADLINE_MS = 120_000;

/** Whether systemd runs as init, so that units have an effect now. */
export function isBooted(): boolean {
  return existsSync(BOOTED);
}

/** Makes systemd listen on the socket, now and after a boot. A daemon of the replaced executables ends, and a new one may start. */
export function enableUnits(): void {
  systemctl('daemon-reload');
  systemctl('enable', '--now', SOCKET_UNIT);
  systemctl('try-restart', SERVICE_UNIT);
}

/** Stops both units, before their files are removed. */
export function disableUnits(): void {
  systemctl('disable', '--now', SOCKET_UNIT, SERVICE_UNIT);
}

/** After their files were removed. */
export function forgetUnits(): void {
  systemctl('daemon-reload');
}

/** @throws Error with what systemctl reports */
function systemctl(...args: string[]): void {
  const argv = ['systemctl', ...args];
  const advice = 'the files are in place; run it by hand';
  if (Bun.which('systemctl') === null)
    throw new Error(`Cannot run "${argv.join(' ')}": there is no systemctl; ${advice}`);
  const { exitCode, stderr } = Bun.spawnSync(argv, {
    stdin: 'ignore',
    stdout: 'ignore',
    timeout: DEADLINE_MS,
  });
  if (exitCode !== 0)
    throw new Error(
      `Cannot run "${argv.join(' ')}": ${stderr.toString().trim() || `exit code ${exitCode}`}; ${advice}`,
    );
}

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
