// Which interface of a bus address is meant, which drivers have none, and what is told about the device?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { writeDeviceInfo } from '../../../../plugins/host-device/plugin.ts';
import { findPciAddress, select } from '../../../../plugins/host-device/select.ts';
import type { NetlinkSocket } from '../../../../src/netlink/socket.ts';

const SYS = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-sys-'));
afterAll(() => fs.rmSync(SYS, { recursive: true, force: true }));

/** A kernel that has no interface, and notes for which one it was asked. */
function noInterfaces(): { host: NetlinkSocket; asked: string[] } {
  const asked: string[] = [];
  const host = {
    askAll: (questions: readonly { op: string }[]) => {
      asked.push(...questions.map(({ op }) => op));
      return questions.map(() => undefined);
    },
    dump: () => [],
  } as unknown as NetlinkSocket;
  return { host, asked };
}

function pci(address: string, driver: string, ...interfaces: string[]): void {
  const dir = path.join(SYS, 'bus/pci/devices', address);
  fs.mkdirSync(dir, { recursive: true });
  fs.symlinkSync(`../../../../bus/pci/drivers/${driver}`, path.join(dir, 'driver'));
  for (const name of interfaces) fs.mkdirSync(path.join(dir, name), { recursive: true });
}

pci('0000:03:00.0', 'ixgbe', 'net/ens4');
pci('0000:04:00.0', 'virtio-pci', 'virtio3/net/ens5');
for (const [i, driver] of ['vfio-pci', 'uio_pci_generic', 'igb_uio'].entries())
  pci(`0000:05:00.${i}`, driver);
fs.mkdirSync(path.join(SYS, 'bus/auxiliary/devices/mlx5_core.sf.4/net/en3f0'), { recursive: true });
fs.mkdirSync(path.join(SYS, 'devices/pci0/net/ens9'), { recursive: true });

test.each([
  [{ by: 'pci', address: '0000:03:00.0' }, 'ens4'],
  [{ by: 'deviceID', id: '0000:03:00.0' }, 'ens4'],
  [{ by: 'pci', address: '0000:04:00.0' }, 'ens5'],
  [{ by: 'deviceID', id: 'mlx5_core.sf.4' }, 'en3f0'],
  [{ by: 'kernelpath', path: '/sys/devices/pci0' }, 'ens9'],
] as const)('%p is the interface "%s"', (selector, name) => {
  const { host, asked } = noInterfaces();
  expect(select(host, selector, SYS)).toEqual({
    kind: 'absent',
    why: `there is no interface "${name}" on the host`,
  });
  expect(asked).toEqual([`find link "${name}"`]);
});

test.each([0, 1, 2])('function %d is driven by a program in user space', i => {
  const { host } = noInterfaces();
  const pciAddress = `0000:05:00.${i}`;
  expect(select(host, { by: 'pci', address: pciAddress }, SYS)).toEqual({ kind: 'userspace', pciAddress });
});

test('an address of neither bus is refused, and one without an interface is absent', () => {
  const { host } = noInterfaces();
  expect(() => select(host, { by: 'deviceID', id: 'x.9' }, SYS)).toThrow('neither on the PCI bus nor');
  expect(select(host, { by: 'pci', address: '0000:09:00.0' }, SYS)).toMatchObject({ kind: 'absent' });
  expect(select(host, { by: 'mac', mac: '02:00:00:00:00:01' }, SYS)).toMatchObject({ kind: 'absent' });
  expect(findPciAddress({ by: 'deviceID', id: 'mlx5_core.sf.4' }, SYS)).toBeUndefined();
});

test('describes a PCI device in the file that the caller names, unless it exists', () => {
  pci('0000:06:00.0', 'mlx5_core', 'infiniband/mlx5_1', 'infiniband/mlx5_0');
  fs.symlinkSync('../0000:03:00.0', path.join(SYS, 'bus/pci/devices/0000:06:00.0/physfn'));
  const undone: (() => unknown)[] = [];
  const write = (file: string | undefined, address: string | undefined) => {
    const conf = {
      type: 'host-device',
      useInterfaceNetwork: false,
      runtimeConfig: { CNIDeviceInfoFile: file },
    };
    writeDeviceInfo({ conf, onFailure: (_what, undo) => void undone.push(() => undo([])) }, address, SYS);
  };
  const file = path.join(SYS, 'devinfo/cni/net');
  write(undefined, '0000:06:00.0');
  write(file, undefined);
  expect(fs.existsSync(file)).toBeFalse();
  write(file, '0000:06:00.0');
  const pf = { 'pci-address': '0000:06:00.0', 'rdma-device': 'mlx5_0', 'pf-pci-address': '0000:03:00.0' };
  const told = { type: 'pci', version: '1.1.0', pci: pf };
  expect(JSON.parse(fs.readFileSync(file, 'utf8'))).toEqual(told);
  write(file, '0000:03:00.0');
  expect(JSON.parse(fs.readFileSync(file, 'utf8'))).toEqual(told);
  expect(undone).toHaveLength(1);
  for (const undo of undone) undo();
  expect(fs.existsSync(file)).toBeFalse();
  write(file, '0000:03:00.0');
  const plain = { type: 'pci', version: '1.1.0', pci: { 'pci-address': '0000:03:00.0' } };
  expect(JSON.parse(fs.readFileSync(file, 'utf8'))).toEqual(plain);
  expect(() => write('devinfo/net', '0000:03:00.0')).toThrow('expected an absolute path');
});
