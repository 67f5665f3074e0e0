// Which process may move a device?
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { withPluginLock } from '../../src/plugin/lock.ts';
import { ownNetns } from '../../src/sys/netns.ts';
import { type DeviceRecord, recordDirOf } from './record.ts';

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
  const file = `${lockNameOf(device).replaceAll(/[^\w:.-]/g, '_')}.lock`;
  return withPluginLock(`${recordDirOf(env)}/${file}`, step);
}
