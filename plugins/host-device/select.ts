// Which device of the host does the configuration mean, and does the kernel drive it at all?
import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { basename, join } from 'node:path';
import { attempt, invalidConfig } from '../../src/cni/errors.ts';
import { namesIn } from '../../src/files/read-file.ts';
import { findLink, type Link, listLinks, lowerOf } from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import type { Selector } from './config.ts';

/** Drivers that hand a PCI device to a program in user space, such as DPDK; there is no interface to move. */
const USERSPACE_DRIVERS = ['vfio-pci', 'uio_pci_generic', 'igb_uio'];

const SYS = '/sys';

export type Selected =
  | { readonly kind: 'interface'; readonly link: Link }
  /** A PCI device that a program in user space drives. */
  | { readonly kind: 'userspace'; readonly pciAddress: string }
  /** A device that has no interface in this namespace: missing, or held by a container. */
  | { readonly kind: 'absent'; readonly why: string };

/**
 * Looks the device up.
 * @param sys where sysfs is mounted
 * @throws CniError 7 when a `deviceID` is on no bus
 */
export function select(host: NetlinkSocket, selector: Selector, sys = SYS): Selected {
  if (selector.by === 'name') return linkOf(host, selector.name);
  if (selector.by === 'mac') {
    const all = listLinks(host).filter(({ mac }) => mac === selector.mac);
    // A bridge has the address of its port, and a VLAN device that of the device below: the lowest one is meant.
    const isUpper = (link: Link) =>
      all.some(({ index, master }) => master === link.index || index === lowerOf(link));
    const link = all.find(one => !isUpper(one)) ?? all[0];
    return link
      ? { kind: 'interface', link }
      : absent(`no interface has the hardware address ${selector.mac}`);
  }
  if (selector.by === 'kernelpath') {
    return firstOf(host, [join(sys, selector.path.slice(SYS.length), 'net')], `"${selector.path}"`);
  }
  const pciAddress = findPciAddress(selector, sys);
  if (pciAddress === undefined) return onAuxiliaryBus(host, selector, sys);
  const dir = join(sys, 'bus/pci/devices', pciAddress);
  const what = `PCI device "${pciAddress}"`;
  if (!existsSync(dir)) return absent(`there is no ${what}`);
  const driver = attempt(() => basename(readlinkSync(join(dir, 'driver')))) ?? '';
  if (USERSPACE_DRIVERS.includes(driver)) return { kind: 'userspace', pciAddress };
  const below = namesIn(dir).filter(name => name.startsWith('virtio'));
  return firstOf(
    host,
    ['', ...below].map(name => join(dir, name, 'net')),
    what,
  );
}

export function findPciAddress(selector: Selector, sys = SYS): string | undefined {
  if (selector.by === 'pci') return selector.address;
  const isPci = selector.by === 'deviceID' && existsSync(join(sys, 'bus/pci/devices', selector.id));
  return isPci ? selector.id : undefined;
}

function onAuxiliaryBus(host: NetlinkSocket, selector: Selector, sys: string): Selected {
  const id = selector.by === 'deviceID' ? selector.id : '';
  const dir = join(sys, 'bus/auxiliary/devices', id);
  if (existsSync(dir)) return firstOf(host, [join(dir, 'net')], `auxiliary device "${id}"`);
  throw invalidConfig(
    `Cannot use device "${id}" of "runtimeConfig.deviceID": it is neither on the PCI bus nor on the auxiliary bus`,
  );
}

/** The first interface in the directories, in the order of their names, as in the reference. */
function firstOf(host: NetlinkSocket, dirs: readonly string[], what: string): Selected {
  const [name] = dirs.flatMap(dir => (existsSync(dir) ? readdirSync(dir).sort() : []));
  return name === undefined ? absent(`${what} has no interface on the host`) : linkOf(host, name);
}

function linkOf(host: NetlinkSocket, name: string): Selected {
  const link = findLink(host, name);
  return link ? { kind: 'interface', link } : absent(`there is no interface "${name}" on the host`);
}

function absent(why: string): Selected {
  return { kind: 'absent', why };
}
