// How is packet forwarding enabled on the host?
import type { Ip } from '../net/ip.ts';
import { confirm } from '../plugin/confirm.ts';
import { canWriteSysctl, findSysctl, trySysctl, writeSysctl } from '../sys/sysctl.ts';

const SYSCTLS = { 4: 'net/ipv4/ip_forward', 6: 'net/ipv6/conf/all/forwarding' } as const;

/**
 * Enables forwarding for the families of these addresses. Never disabled again, because other networks or the host itself
 * may rely on it. Call it last, so that a failed ADD has not touched it.
 */
export function ensureForwarding(ips: readonly Ip[]): void {
  const changed: string[] = [];
  for (const path of sysctlsFor(ips)) {
    if (findSysctl(path) === '1') continue;
    try {
      writeSysctl(path, '1');
      changed.push(path);
    } catch (thrown) {
      for (const other of changed) trySysctl(other, '0');
      throw thrown;
    }
  }
}

/** @throws Error naming the sysctl that is off */
export function checkForwarding(ips: readonly Ip[]): void {
  for (const path of sysctlsFor(ips)) confirm(`sysctl "${path}"`, '1', findSysctl(path));
}

/** The families for which forwarding is off and cannot be enabled, for example because /proc is read-only. */
export function stuckFamilies(): (4 | 6)[] {
  return ([4, 6] as const).filter(family => {
    const path = SYSCTLS[family];
    return findSysctl(path) !== '1' && !canWriteSysctl(path);
  });
}

function sysctlsFor(ips: readonly Ip[]): string[] {
  const families = new Set(ips.map(({ family }) => family));
  return [...families].map(family => SYSCTLS[family]);
}
