// How does the container's interface get its addresses?

import { CniError, ErrorCode } from '../cni/errors.ts';
import type { PluginConfig } from '../cni/plugin-config.ts';
import type { Cidr } from '../net/cidr.ts';
import type { Request } from '../netlink/codec.ts';
import { type Address, addAddressRequest, restoreAddressRequest } from '../netlink/rtnl/addr.ts';
import { findLink, IFF_UP, type Link, setLinkRequest } from '../netlink/rtnl/link.ts';
import type { Call } from '../plugin/define.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import { findSysctl, trySysctl, writeSysctl } from '../sys/sysctl.ts';
import type { ContainerAddressing } from './addressing.ts';
import { addRoutes } from './routes.ts';

const ALL_REDIRECTS = 'net/ipv4/conf/all/accept_redirects';
const LOOPBACK_SWITCH = 'net/ipv6/conf/lo/disable_ipv6';

/**
 * Gives the container's interface its addresses, brings it up and adds the routes.
 * @param detectDuplicates leave IPv6 duplicate address detection enabled; the container then waits for it
 */
export function configureContainer(
  call: Call,
  link: Link,
  { ips, routes }: ContainerAddressing,
  detectDuplicates: boolean,
): void {
  const cidrs = ips.map(({ cidr }) => cidr);
  prepare(call, link, cidrs, detectDuplicates);
  addRoutes(call.container, link, routes, addressing(link, cidrs, detectDuplicates));
}

/**
 * Gives the container's interface its addresses and brings it up. The addresses come first because the kernel announces
 * them when the interface comes up (arp_notify, ndisc_notify).
 * @param kept addresses that were listed elsewhere, with all that belongs to them; they come before the others
 */
export function addressContainer(
  call: Call,
  link: Link,
  cidrs: readonly Cidr[],
  detectDuplicates: boolean,
  kept: readonly Address[] = [],
): void {
  prepare(call, link, [...kept.map(({ cidr }) => cidr), ...cidrs], detectDuplicates);
  call.container.requestAll(addressing(link, cidrs, detectDuplicates, kept));
}

/**
 * Leaves addresses, routes and gateways of the interface to its configuration: any neighbour could otherwise route the container by a
 * router advertisement (CVE-2020-13401) or a redirect. To be called before the interface is up; dhcp opens what `ipv6` asks for.
 */
export function ignoreNeighbours(call: Call<PluginConfig>, ifname: string): void {
  const { containerNetns: netns, conf } = call;
  if (!conf.ipam?.type) return;
  inNetns(netns, () => {
    for (const key of ['accept_ra', 'autoconf', 'accept_redirects'])
      trySysctl(`net/ipv6/conf/${ifname}/${key}`, '0');
    for (const key of ['accept_redirects', 'accept_source_route'])
      trySysctl(`net/ipv4/conf/${ifname}/${key}`, '0');
    // Either of both counts, on an interface that does not forward.
    if (findSysctl(ALL_REDIRECTS) !== '1') return;
    call.onFailure('accept redirects again', () => inNetns(netns, () => trySysctl(ALL_REDIRECTS, '1')));
    trySysctl(ALL_REDIRECTS, '0');
  });
}

/** Applies the settings that the interface needs before it gets addresses. */
function prepare(call: Call, link: Link, cidrs: readonly Cidr[], detectDuplicates: boolean): void {
  const { containerNetns: netns } = call;
  const wantsIpv6 = cidrs.some(({ ip }) => ip.family === 6);
  inNetns(netns, () => {
    writeSysctls(link.name, detectDuplicates);
    if (!wantsIpv6) return;
    enableIpv6(link.name, () => {
      call.onFailure('disable IPv6 again', () => inNetns(netns, () => trySysctl(LOOPBACK_SWITCH, '1')));
    });
  });
}

/** A device that is up already, as a DHCP client needs it, goes down first: the kernel announces addresses on the way up. */
function addressing(
  { index, flags }: Link,
  cidrs: readonly Cidr[],
  detectDuplicates: boolean,
  kept: readonly Address[] = [],
): Request[] {
  return [
    ...(flags & IFF_UP ? [setLinkRequest(index, { up: false })] : []),
    ...kept.map(address => restoreAddressRequest({ ...address, index })),
    ...cidrs.map(cidr => addAddressRequest(index, cidr, { nodad: !detectDuplicates })),
    setLinkRequest(index, { up: true }),
  ];
}

function writeSysctls(ifname: string, detectDuplicates: boolean): void {
  trySysctl(`net/ipv4/conf/${ifname}/arp_notify`, '1');
  const conf = `net/ipv6/conf/${ifname}`;
  trySysctl(`${conf}/accept_dad`, detectDuplicates ? '1' : '0');
  if (detectDuplicates) trySysctl(`${conf}/enhanced_dad`, '1');
}

/** @param onLoopback called before the loopback device, which outlives a failed ADD, is changed */
function enableIpv6(ifname: string, onLoopback: () => void): void {
  const conf = `net/ipv6/conf/${ifname}`;
  trySysctl(`${conf}/ndisc_notify`, '1');
  for (const path of [LOOPBACK_SWITCH, `${conf}/disable_ipv6`]) {
    const disabled = findSysctl(path);
    if (disabled === undefined) {
      throw new Error(
        `Cannot give "${ifname}" an IPv6 address: this kernel has no IPv6; remove the IPv6 range from "ipam"`,
      );
    }
    if (disabled === '0') continue;
    if (path === LOOPBACK_SWITCH) onLoopback();
    writeSysctl(path, '0');
  }
  trySysctl(`${conf}/keep_addr_on_down`, '1');
}

/** @throws CniError 4 when the container has an interface of that name */
export function refuseTakenName({ container, containerNetns, env }: Call): void {
  if (findLink(container, env.ifname)) throw interfaceExists(env.ifname, containerNetns);
}

/** The container has an interface of that name, which another ADD or the container made. */
export function interfaceExists(ifname: string, netns: Pick<Netns, 'path'>, cause?: unknown): CniError {
  return new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot create interface "${ifname}" in "${netns.path}": an interface of that name exists; run DEL first`,
    { details: `CNI_IFNAME=${ifname}`, cause },
  );
}
