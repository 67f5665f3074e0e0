// How does the host come to pass packets on?
import type { Ip } from '../net/ip.ts';
import { confirm } from '../plugin/confirm.ts';
import { ensureSysctl, findSysctl } from '../sys/sysctl.ts';

/**
 * Turns forwarding on, for the families of these addresses. Never turned off again: other networks may rely on it, and
 * so may the host.
 */
export function ensureForwarding(ips: readonly Ip[]): void {
  for (const path of sysctlsFor(ips)) ensureSysctl(path, '1');
}

/** @throws Error naming the parameter that is off */
export function checkForwarding(ips: readonly Ip[]): void {
  for (const path of sysctlsFor(ips)) confirm(`sysctl "${path}"`, '1', findSysctl(path));
}

function sysctlsFor(ips: readonly Ip[]): string[] {
  const families = new Set(ips.map(({ family }) => family));
  return [...families].map(family => (family === 4 ? 'net/ipv4/ip_forward' : 'net/ipv6/conf/all/forwarding'));
}
