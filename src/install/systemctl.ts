// How does systemd learn about our units?
import { existsSync } from 'node:fs';
import { SERVICE_UNIT, SOCKET_UNIT } from './units.ts';

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
