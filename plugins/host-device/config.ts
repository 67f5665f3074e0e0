// Which options does the host-device plugin take, and which values are invalid?
import * as z from 'zod/mini';
import { attempt, type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { findIfnameProblem, parseMac, renderMac } from '../../src/net/interface.ts';

/** Options of a `"type": "host-device"` entry; {@link selectorOf} refuses invalid values. */
export const HostDeviceConf = z.extend(PluginConfig, {
  /** Name of the device; takes precedence over the other keys that name one. */
  device: z.optional(z.string()),
  /** Hardware address of the device, six bytes. Of several that share it, such as a bridge and its port, the lowest one. */
  hwaddr: z.optional(z.string()),
  /** Directory of the device in sysfs, below `/sys/devices/`. */
  kernelpath: z.optional(z.string()),
  /** PCI address of the device, such as `0000:03:00.0`. */
  pciBusID: z.optional(z.string()),
  /** Give the container the addresses, routes and source rules that the device has on the host. */
  useInterfaceNetwork: z._default(z.boolean(), false),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `deviceID`: PCI address or name on the auxiliary bus; replaces `pciBusID`. */
      deviceID: z.optional(z.string()),
      /** Capability `CNIDeviceInfoFile`: file in which ADD describes a PCI device (device information specification 1.1.0), unless it exists. */
      CNIDeviceInfoFile: z.optional(z.string()),
    }),
  ),
});
export type HostDeviceConf = z.output<typeof HostDeviceConf>;

/** How the configuration names the device. */
export type Selector =
  | { readonly by: 'name'; readonly name: string }
  | { readonly by: 'mac'; readonly mac: string }
  | { readonly by: 'kernelpath'; readonly path: string }
  | { readonly by: 'pci'; readonly address: string }
  /** On the PCI bus or on the auxiliary bus. */
  | { readonly by: 'deviceID'; readonly id: string };

/** Where sysfs has devices. */
const SYS_DEVICES = '/sys/devices/';

/**
 * Reads which device is meant. Precedence as in the reference: `device`, `hwaddr`, `kernelpath`, then the bus.
 * @throws CniError 7 when no key names a device, or one has a value that no device can have
 */
export function selectorOf(conf: HostDeviceConf): Selector {
  const { device, hwaddr, kernelpath, pciBusID } = conf;
  const deviceID = conf.runtimeConfig?.deviceID;
  if (device) {
    const problem = findIfnameProblem(device);
    if (problem) throw invalid(`"device" is "${device}": ${problem}`);
    return { by: 'name', name: device };
  }
  if (hwaddr) return { by: 'mac', mac: macOf(hwaddr) };
  if (kernelpath) {
    const isInside = kernelpath.startsWith(SYS_DEVICES) && !kernelpath.split('/').includes('..');
    if (!isInside) throw invalid(`"kernelpath" is "${kernelpath}", expected a path below "${SYS_DEVICES}"`);
    return { by: 'kernelpath', path: kernelpath };
  }
  if (deviceID) return { by: 'deviceID', id: busName(deviceID, 'runtimeConfig.deviceID') };
  if (pciBusID) return { by: 'pci', address: busName(pciBusID, 'pciBusID') };
  throw invalid('none of "device", "hwaddr", "kernelpath" and "pciBusID" names a device; set one of them');
}

/** The selector, or undefined when the configuration names no device: for DEL and GC, which work without. */
export function findSelector(conf: HostDeviceConf): Selector | undefined {
  return attempt(() => selectorOf(conf));
}

function macOf(text: string): string {
  try {
    return renderMac(parseMac(text));
  } catch (cause) {
    throw invalid(`"hwaddr" is "${text}", expected six bytes such as "0a:58:0a:01:02:03"`, cause);
  }
}

/** The name becomes part of a path below `/sys/bus`. */
function busName(text: string, key: string): string {
  if (/^[\w:.-]+$/.test(text) && !text.includes('..')) return text;
  throw invalid(`"${key}" is "${text}", expected an address such as "0000:03:00.0"`);
}

function invalid(what: string, cause?: unknown): CniError {
  return invalidConfig(`Cannot use host-device configuration: ${what}`, { cause });
}
