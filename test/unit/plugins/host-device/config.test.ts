// Which device does a configuration name, and which values are refused?
import { expect, test } from 'bun:test';
import { findSelector, HostDeviceConf, selectorOf } from '../../../../plugins/host-device/config.ts';

const parse = (conf: object) => HostDeviceConf.parse(conf);

test('"device" wins over all others, and the capability over "pciBusID"', () => {
  const all = { hwaddr: '02-00-00-00-00-0A', kernelpath: '/sys/devices/x', pciBusID: '0000:03:00.0' };
  const runtimeConfig = { deviceID: 'mlx5_core.sf.4' };
  expect(selectorOf(parse({ device: 'ens4', ...all, runtimeConfig }))).toEqual({ by: 'name', name: 'ens4' });
  expect(selectorOf(parse({ ...all, runtimeConfig }))).toEqual({ by: 'mac', mac: '02:00:00:00:00:0a' });
  const { hwaddr: _, ...rest } = all;
  expect(selectorOf(parse({ ...rest, runtimeConfig }))).toEqual({ by: 'kernelpath', path: '/sys/devices/x' });
  const { kernelpath: __, ...bus } = rest;
  expect(selectorOf(parse({ ...bus, runtimeConfig }))).toEqual({ by: 'deviceID', id: 'mlx5_core.sf.4' });
  expect(selectorOf(parse(bus))).toEqual({ by: 'pci', address: '0000:03:00.0' });
});

test.each([
  {},
  { device: 'a/b' },
  { device: 'longer-than-fifteen' },
  { hwaddr: '02:00' },
  { kernelpath: '/sys/class/net/eth0' },
  { kernelpath: '/sys/devices/../../etc' },
  { pciBusID: '../../../tmp' },
  { pciBusID: '0000:03:00.0/..' },
  { runtimeConfig: { deviceID: '..' } },
])('%p names no device', conf => {
  expect(() => selectorOf(parse(conf))).toThrow('Cannot use host-device configuration');
  expect(findSelector(parse(conf))).toBeUndefined();
});
