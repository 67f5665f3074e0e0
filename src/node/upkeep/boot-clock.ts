// How long has the machine been up?
import { readFileSync } from 'node:fs';

/** Seconds since the boot, including time asleep (CLOCK_BOOTTIME). Setting the time of day does not change it. */
export function bootClock(): number {
  return Number.parseFloat(readFileSync('/proc/uptime', 'latin1'));
}
