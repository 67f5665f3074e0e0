// Which process may move a device?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { withFlock } from '../../src/sys/flock.ts';
import { ownNetns } from '../../src/sys/netns.ts';
import { type DeviceRecord, recordDirOf } from './record.ts';

/** Moving a device waits for RCU grace periods, and a network card may take seconds to go down. */
const LOCK_DEADLINE_MS = 20_000;

/** The name of a device's lock: of the bus if it is on one, else by its permanent or original hardware address. */
export function lockNameOf(device: Link | DeviceRecord): string {
  const { bus, name, mac } =
    'attrs' in device
      ? {
          bus: device.attrs.parentDevBusName,
          name: device.attrs.parentDevName,
          mac: device.attrs.permAddress ?? device.mac,
        }
      : { ...device.parent, mac: device.permanentMac ?? device.mac };
  return name === undefined ? `${ownNetns().ino}-${mac ?? device.name}` : `${bus ?? 'bus'}-${name}`;
}

/**
 * Runs a step during which no other process of ours moves the device. Records and devices must be looked up in it.
 * @throws CniError 11 when the lock is not available in time
 */
export function withDeviceLock<T>(
  env: Readonly<Record<string, string | undefined>>,
  device: Link | DeviceRecord,
  step: () => T,
): T {
  let entered = false;
  const file = `${lockNameOf(device).replaceAll(/[^\w:.-]/g, '_')}.lock`;
  try {
    return withFlock(
      `${recordDirOf(env)}/${file}`,
      LOCK_DEADLINE_MS,
      () => {
        entered = true;
        return step();
      },
      { mode: 0o600, directoryMode: 0o700 },
    );
  } catch (cause) {
    if (entered) throw cause;
    throw new CniError(ErrorCode.tryAgainLater, (cause as Error).message, { cause });
  }
}
