// What do programs tell each other about the device of a network? (Device information specification 1.1.0)
import { defined, isObject, type JsonObject } from './json.ts';

/** The capability in which a plugin gets the path of the file, which is unique to its network. */
export const DEVICE_INFO_CAPABILITY = 'CNIDeviceInfoFile';

/** Where the files are: in `dp` those of device plugins, in `cni` those of networks. */
export const DEVICE_INFO_DIR = '/var/run/k8s.cni.cncf.io/devinfo';

const VERSION = '1.1.0';

/** Kinds of devices; each has a member of that name. */
const TYPES: readonly unknown[] = ['pci', 'vdpa', 'vhost-user', 'memif'];

/** A PCI device, by its address, and what belongs to it. */
interface PciDevice {
  readonly address: string;
  /** Address of the physical function of a virtual one. */
  readonly physicalAddress?: string | undefined;
  readonly rdmaDevice?: string | undefined;
}

/** The information about a PCI device. */
export function pciDeviceInfo({ address, physicalAddress, rdmaDevice }: PciDevice): JsonObject {
  const more = defined({ 'rdma-device': rdmaDevice, 'pf-pci-address': physicalAddress });
  return { type: 'pci', version: VERSION, pci: { 'pci-address': address, ...more } };
}

/** What keeps a value from being device information, or undefined. Types of later versions are taken as they are. */
export function findDeviceInfoProblem(value: unknown): string | undefined {
  if (!isObject(value)) return 'it is not a JSON object';
  const { type } = value;
  if (typeof type !== 'string' || type === '') return 'it has no "type"';
  if (!TYPES.includes(type) || isObject(value[type])) return undefined;
  return `its type is "${type}", but it has no object "${type}"`;
}
