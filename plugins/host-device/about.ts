// What can tools know about host-device without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { HostDeviceConf, selectorOf } from './config.ts';
import { recordDirOf } from './record.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'moves a device of the host into the container, and home again as it was',
  capabilities: ['deviceID', 'CNIDeviceInfoFile'],
  config: HostDeviceConf,
  // With the capability the runtime names the device.
  validate: conf => void (conf.capabilities?.deviceID || selectorOf(conf)),
  reachOf: () => ['the container alone reaches what its device is connected to'],
  filesOf: () => ({ backupDir: recordDirOf() }),
});
