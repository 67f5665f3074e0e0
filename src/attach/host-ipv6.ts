// May a device of the host have IPv6 addresses?
import { CniError, ErrorCode } from '../cni/errors.ts';
import { findSysctl, writeSysctl } from '../sys/sysctl.ts';

/** The parameter that hardened hosts set for all new devices. */
function switchOf(name: string): string {
  return `net/ipv6/conf/${name}/disable_ipv6`;
}

/**
 * Enables IPv6 on a device of ours, as in the container: a host that disables it by default does not mean its containers.
 * @returns whether it was disabled
 * @throws Error when the kernel has no IPv6
 */
export function enableHostIpv6(name: string): boolean {
  const found = findSysctl(switchOf(name));
  if (found === '0') return false;
  if (found === undefined) {
    throw new Error(
      `Cannot give "${name}" an IPv6 address: this kernel has no IPv6; remove the IPv6 range from "ipam"`,
    );
  }
  writeSysctl(switchOf(name), '0');
  return true;
}

/** @throws CniError 7 when IPv6 is disabled on a device that others made, whose settings are theirs */
export function requireHostIpv6(name: string): void {
  if (findSysctl(switchOf(name)) !== '1') return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot give "${name}" an IPv6 address: IPv6 is disabled on it, and this plugin did not create it; ` +
      `run: sysctl -w ${switchOf(name)}=0`,
  );
}

/** Disables it again. */
export function disableHostIpv6(name: string): void {
  writeSysctl(switchOf(name), '1');
}
