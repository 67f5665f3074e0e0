// Is a device of the container still as ADD left it?

import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { Result, ResultInterface } from '../../cni/result.ts';
import { findLink, type Link, setLink } from '../../netlink/rtnl/link.ts';
import { IFF_UP } from '../../netlink/rtnl/link-attrs.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import { confirm } from '../../plugin/confirm.ts';
import type { Call } from '../../plugin/define.ts';
import { mend } from '../../plugin/mend.ts';
import { checkAddresses, checkMac, stateOf } from '../check.ts';
import { AUTO_MTU } from '../mtu.ts';
import { checkRoutes, putRoutesRight } from '../routes.ts';
import { addressesFromResult } from './plan.ts';

/** What CHECK expects of a device, besides what the result says. */
interface DeviceExpectation {
  /** Kind of device, as in `ip -d link`. */
  readonly kind: string;
  /** Configured MTU in bytes; 0 or undefined when the kernel chose it. */
  readonly mtu?: number | undefined;
  /** Checks what is below the device, and returns an MTU that the device may have followed to since ADD. */
  readonly checkLower?: ((link: Link) => number) | undefined;
}

/** The result of the ADD. @throws CniError 7 when the request has none */
export function requirePrevResult({ prevResult }: Call): Result {
  if (prevResult) return prevResult;
  throw new CniError(ErrorCode.invalidConfig, 'Cannot check attachment: the request has no "prevResult"');
}

/** A device of the container, as the result of its ADD has it, and as it is. */
interface FoundDevice {
  /** For errors. */
  readonly name: string;
  readonly reported: ResultInterface | undefined;
  readonly link: Link;
}

/** @throws Error if the result does not have it, or it is gone */
export function findDevice({ env, container }: Call, prevResult: Result): FoundDevice {
  const name = `interface "${env.ifname}"`;
  const reported = prevResult.interfaces?.find(one => one.name === env.ifname && one.sandbox === env.netns);
  confirm(`${name} of "${env.netns}" in the result`, env.ifname, reported?.name);
  const link = findLink(container, env.ifname);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  return { name, reported, link };
}

/** Compares addresses and routes with those of the result of ADD. @throws Error naming the first difference */
export function checkLayer3(
  { container }: Call,
  link: Link,
  { ips, routes }: ReturnType<typeof addressesFromResult>,
): void {
  checkAddresses(
    container,
    link,
    ips.map(({ cidr }) => cidr),
  );
  checkRoutes(container, link, routes);
}

/**
 * Compares kind, hardware address, MTU, state, addresses and routes of every table with the result of ADD.
 * @throws Error naming the first difference, CniError 7 without a result
 */
export function checkDevice(call: Call, expected: DeviceExpectation): Link {
  const prevResult = requirePrevResult(call);
  const { name, reported, link } = findDevice(call, prevResult);
  confirm(`kind of ${name}`, expected.kind, link.kind);
  // A later plugin such as tuning may have changed address and MTU, and then says so in the result.
  checkMac(name, reported, link);
  const followed = expected.checkLower?.(link);
  const mtu = reported?.mtu ?? (expected.mtu || undefined);
  const hasFollowed = !expected.mtu && followed === link.mtu;
  if (mtu !== undefined && !hasFollowed) confirm(`MTU of ${name}`, mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  const layer3 = addressesFromResult(prevResult, call.env.ifname, call.env.netns);
  if (layer3.ips.length > 0) checkLayer3(call, link, layer3);
  return link;
}

/** The result of ADD, and the MTU that the configuration gives a pair: 0 or undefined if it gives none. */
interface PairExpectation {
  readonly prevResult: Result;
  readonly mtu?: number | typeof AUTO_MTU | undefined;
}

/**
 * The container's end of a veth pair, compared with the result of ADD.
 * @param isUp whether ADD brought it up; otherwise that is the container's business
 * @throws Error naming the first difference
 */
export function checkContainerEnd(call: Call, prevResult: Result, isUp = true): Link {
  const { name, reported, link } = findDevice(call, prevResult);
  confirm(`kind of ${name}`, 'veth', link.kind);
  // A later plugin such as tuning may legitimately have changed both, and then says so in the result.
  checkMac(name, reported, link);
  if (reported?.mtu !== undefined) confirm(`MTU of ${name}`, reported.mtu, link.mtu);
  if (isUp) confirm(`state of ${name}`, 'up', stateOf(link));
  return link;
}

/** The host's end, in the same way. @throws Error naming the first difference */
export function checkHostEnd({ host }: Call, { prevResult, mtu }: PairExpectation, container: Link): Link {
  const name = `host end of "${container.name}"`;
  const link = findLink(host, container.peer);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  const reported = prevResult.interfaces?.find(one => one.name === link.name && !one.sandbox);
  confirm(`${name} in the result`, link.name, reported?.name);
  checkMac(name, reported, link);
  // An uplink may have got another MTU since ADD.
  if (mtu && mtu !== AUTO_MTU) confirm(`MTU of ${name}`, mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  return link;
}

/** Brings a device up, unless it is. */
export function raise(socket: NetlinkSocket, link: Link): void {
  if (!(link.flags & IFF_UP)) setLink(socket, link.index, { up: true });
}

/**
 * Brings the device up and restores its routes.
 * @throws Error when the device is missing: only a new ADD can make it
 */
export function repairDevice(call: Call, kind: string): Link {
  const { container, env, prevResult } = call;
  const link = findLink(container, env.ifname);
  if (prevResult === undefined || link?.kind !== kind) {
    throw new Error(
      `Cannot repair the attachment: only DEL and ADD can recreate the ${kind} interface "${env.ifname}"`,
    );
  }
  raise(container, link);
  const { routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  mend(
    () => checkRoutes(container, link, routes),
    () => putRoutesRight(container, link, routes),
  );
  return link;
}
