// Which process may move a device?
import { withPluginLock } from '../../src/plugin/lock.ts';
import { type DeviceRecord, recordDirOf } from './record.ts';

/**
 * Runs a step during which no other process of ours moves the device. Records and devices must be looked up in it.
 * @throws CniError 11 when the lock is not available in time
 */
export function withDeviceLock<T>(
  env: Readonly<Record<string, string | undefined>>,
  { parent, node }: Pick<DeviceRecord, 'parent' | 'node'>,
  step: () => T,
): T {
  // A device whose driver was loaded again has another number, and the same place.
  const device = parent === undefined ? `device-${node}` : `${parent.bus ?? 'bus'}-${parent.name}`;
  const file = `${device.replaceAll(/[^\w:.-]/g, '_')}.lock`;
  return withPluginLock(`${recordDirOf(env)}/${file}`, step);
}
