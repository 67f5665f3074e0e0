// How is packet forwarding enabled on the host, and may a device of it have IPv6 addresses?

import { type CniError, invalidConfig } from '../cni/errors.ts';
import { type Cidr, FAMILIES } from '../net/ip.ts';
import { IFF_LOOPBACK, listLinks } from '../netlink/rtnl/link.ts';
import { listRoutes, RTPROT_RA } from '../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Call } from '../plugin/define.ts';
import { confirm } from '../plugin/steps.ts';
import { canWriteSysctl, findSysctl, trySysctl, writeSysctl } from '../sys/sysctl.ts';

/** Value of accept_ra, kernel's Documentation/networking/ip-sysctl.rst: 1 is off where the host forwards, 2 is not. */
const EVEN_IF_FORWARDING = '2';
const REDIRECTS = 'net/ipv4/conf/all/accept_redirects';
const SYSCTLS = { 4: 'net/ipv4/ip_forward', 6: 'net/ipv6/conf/all/forwarding' } as const;

/**
 * Enables forwarding for the families of these addresses, and from the device behind which they are. Never disabled again, because other
 * networks or the host itself may rely on it. Call it last, so that a failed ADD has not touched it.
 */
export function ensureForwarding(
  { host, log }: Pick<Call, 'host' | 'log'>,
  addresses: readonly Cidr[],
  device: string,
): void {
  const undo: (() => void)[] = [];
  const change = (path: string, value: string, before: string): void => {
    writeSysctl(path, value);
    undo.unshift(() => trySysctl(path, before));
  };
  try {
    for (const path of sysctlsFor(addresses)) {
      if (findSysctl(path) === '1') continue;
      if (path === SYSCTLS[6]) {
        for (const name of listRouted(host)) {
          log.info(
            `Setting accept_ra of "${name}" to 2: as a router, the host would lose its own IPv6 router`,
          );
          change(acceptanceOf(name), EVEN_IF_FORWARDING, '1');
        }
      } else {
        // The kernel sets it with the switch, to 1 when that goes back to 0, also where an operator had set it to 0.
        const redirects = findSysctl(REDIRECTS);
        if (redirects !== undefined) undo.unshift(() => trySysctl(REDIRECTS, redirects));
      }
      change(path, '1', '0');
    }
    // The switch for all has turned it on, unless that was on before.
    for (const path of deviceSysctlsFor(addresses, device))
      if (findSysctl(path) === '0') change(path, '1', '0');
  } catch (thrown) {
    for (const step of undo) step();
    throw thrown;
  }
}

/**
 * Devices on which the host listens to routers, which it stops when it forwards: the kernel then drops the routes that it has learned,
 * and ignores what follows. Ours listen to none, ports of bridges have no IPv6 of their own, and on a bridge there may be containers: it
 * counts if a router has been heard there.
 */
function listRouted(host: NetlinkSocket): string[] {
  const heard = new Set(
    listRoutes(host, { protocol: RTPROT_RA }).flatMap(({ oif, protocol }) =>
      protocol === RTPROT_RA ? oif : [],
    ),
  );
  return listLinks(host)
    .filter(({ attrs, flags, index, kind, master }) => {
      const isOurs = attrs.alias?.startsWith('catena:') ?? false;
      return !isOurs && !master && !(flags & IFF_LOOPBACK) && (kind !== 'bridge' || heard.has(index));
    })
    .map(({ name }) => name)
    .filter(name => findSysctl(acceptanceOf(name)) === '1');
}

function acceptanceOf(name: string): string {
  return `net/ipv6/conf/${name}/accept_ra`;
}

/** @throws Error naming the sysctl that is off */
export function checkForwarding(addresses: readonly Cidr[], device: string): void {
  for (const path of [...sysctlsFor(addresses), ...deviceSysctlsFor(addresses, device)])
    confirm(`sysctl "${path}"`, '1', findSysctl(path));
}

/** The families for which forwarding is off and cannot be enabled, for example because /proc is read-only. */
export function stuckFamilies(): (4 | 6)[] {
  return FAMILIES.filter(family => {
    const path = SYSCTLS[family];
    return findSysctl(path) !== '1' && !canWriteSysctl(path);
  });
}

function sysctlsFor(addresses: readonly Cidr[]): string[] {
  const families = new Set(addresses.map(({ ip }) => ip.family));
  return [...families].map(family => SYSCTLS[family]);
}

/** For IPv4, the kernel asks the device on which a packet arrives; for IPv6, only the switch for all (ip6_forward()). */
function deviceSysctlsFor(addresses: readonly Cidr[], device: string): string[] {
  return addresses.some(({ ip }) => ip.family === 4) ? [`net/ipv4/conf/${device}/forwarding`] : [];
}

/** The parameter that hardened hosts set for all new devices. */
function switchOf(name: string): string {
  return `net/ipv6/conf/${name}/disable_ipv6`;
}

/**
 * Enables IPv6 on a device of ours, as in the container: a host that disables it by default does not mean its containers.
 * @returns whether it was disabled
 * @throws CniError 7 when it cannot have IPv6
 */
export function enableHostIpv6(name: string): boolean {
  const found = findSysctl(switchOf(name));
  if (found === '0') return false;
  if (found === undefined) throw withoutIpv6(name);
  writeSysctl(switchOf(name), '0');
  return true;
}

/** What to throw for a device of this namespace without parameters for IPv6: the kernel takes them from one with a small MTU, too. */
export function withoutIpv6(name: string): CniError {
  const why =
    findSysctl(switchOf('all')) === undefined
      ? 'this kernel has no IPv6;'
      : 'its MTU is less than the 1280 bytes that IPv6 needs; raise that, or';
  return invalidConfig(`Cannot give "${name}" an IPv6 address: ${why} remove IPv6 from "ipam"`);
}

/** @throws CniError 7 when a device that others made cannot have IPv6, or has it disabled: its settings are theirs */
export function requireHostIpv6(name: string): void {
  const found = findSysctl(switchOf(name));
  if (found === undefined) throw withoutIpv6(name);
  if (found !== '1') return;
  throw invalidConfig(
    `Cannot give "${name}" an IPv6 address: IPv6 is disabled on it, and this plugin did not create it; ` +
      `run: sysctl -w ${switchOf(name)}=0`,
  );
}

export function disableHostIpv6(name: string): void {
  writeSysctl(switchOf(name), '1');
}
