// What does the plugin tell about the device that it has moved? (Device information specification 1.1.0, section 5.1.2)
import { existsSync, readlinkSync } from 'node:fs';
import { basename, isAbsolute, join } from 'node:path';
import { pciDeviceInfo } from '../../src/cni/device-info.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { namesIn } from '../../src/files/names-in.ts';
import { putFile, removeFile } from '../../src/files/put-file.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { HostDeviceConf } from './config.ts';

/**
 * Writes the file that the caller names, unless the device plugin has already told all of it there. Registers its own undo step:
 * once ADD has succeeded, the file is the caller's.
 * @param sys where sysfs is mounted
 * @throws CniError 7 for a path that is not absolute, 5 when it cannot be written
 */
export function writeDeviceInfo(
  { conf, onFailure }: Pick<Call<HostDeviceConf>, 'conf' | 'onFailure'>,
  address: string | undefined,
  sys = '/sys',
): void {
  const file = conf.runtimeConfig?.CNIDeviceInfoFile;
  if (!file || address === undefined) return;
  if (!isAbsolute(file)) {
    const what = `"runtimeConfig.CNIDeviceInfoFile" is "${file}", expected an absolute path`;
    throw new CniError(ErrorCode.invalidConfig, `Cannot use host-device configuration: ${what}`);
  }
  if (existsSync(file)) return;
  const dir = join(sys, 'bus/pci/devices', address);
  const [rdmaDevice] = namesIn(join(dir, 'infiniband')).sort();
  onFailure('remove device information', () => removeFile(file, 'device information'));
  const info = pciDeviceInfo({ address, rdmaDevice, physicalAddress: physicalOf(dir) });
  putFile(file, JSON.stringify(info), { what: 'device information' });
}

/** Undefined for a device that is no virtual function. */
function physicalOf(dir: string): string | undefined {
  try {
    return basename(readlinkSync(join(dir, 'physfn')));
  } catch {
    return undefined;
  }
}
