// Which units run the daemon under systemd?
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CORE_NAME, ON_DEMAND_SUFFIX } from '../../cni/directories.ts';
import { fillBlanks } from '../fill-blanks.ts';
import { findManifest } from './files.ts';
import serviceUnit from './texts/catena.service.txt' with { type: 'text' };
import socketUnit from './texts/catena.socket.txt' with { type: 'text' };

export interface TextFile {
  readonly path: string;
  readonly text: string;
}

/** The names of the units; `catena.socket` starts `catena.service`. */
const SOCKET_UNIT = 'catena.socket';
export const SERVICE_UNIT = 'catena.service';

/** @param unitDir where the units are, usually /etc/systemd/system */
export function renderUnits(unitDir: string, binDir: string): readonly TextFile[] {
  return [
    { path: `${unitDir}/${SOCKET_UNIT}`, text: socketUnit },
    { path: `${unitDir}/${SERVICE_UNIT}`, text: fillBlanks(serviceUnit, { command: commandIn(binDir) }) },
  ];
}

/** The command's path as systemd reads it: it divides a line at spaces, and "%" begins a specifier (systemd.service(5), "Command lines"). */
function commandIn(binDir: string): string {
  const path = `${binDir}/catena`.replaceAll(/["\\]/g, '\\$&').replaceAll('%', '%%');
  return /[\s'"\\;]/.test(path) ? `"${path}"` : path;
}

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

/** Does the work, which removes the files of the units; if systemd has them, stops both before. */
export function withoutUnits<T>(hasThem: boolean, work: () => T): T {
  if (hasThem) systemctl('disable', '--now', SOCKET_UNIT, SERVICE_UNIT);
  const done = work();
  if (hasThem) systemctl('daemon-reload');
  return done;
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
type Starter = (typeof STARTERS)[number];

/**
 * The files that make it so.
 * @param onDemand the text of the file for calls
 */
export function startersFor(
  starter: Starter,
  { binDir, unitDir, onDemand }: Readonly<Record<'binDir' | 'unitDir' | 'onDemand', string>>,
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
