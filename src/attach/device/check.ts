// Is a device of the container still as ADD left it?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { Result } from '../../cni/result.ts';
import { findLink, type Link } from '../../netlink/rtnl/link.ts';
import { confirm } from '../../plugin/confirm.ts';
import type { Call } from '../../plugin/define.ts';
import { checkAddresses, checkMac, stateOf } from '../check.ts';
import { checkRoutes } from '../routes.ts';
import { addressesFromResult } from './plan.ts';

/** What CHECK expects of a device, besides what the result says. */
export interface DeviceExpectation {
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

/**
 * Compares kind, hardware address, MTU, state, addresses and routes of every table with the result of ADD.
 * @throws Error naming the first difference, CniError 7 without a result
 */
export function checkDevice(call: Call, expected: DeviceExpectation): Link {
  const { env, container } = call;
  const prevResult = requirePrevResult(call);
  const name = `interface "${env.ifname}"`;
  const reported = prevResult.interfaces?.find(one => one.name === env.ifname && one.sandbox === env.netns);
  confirm(`${name} of "${env.netns}" in the result`, env.ifname, reported?.name);
  const link = findLink(container, env.ifname);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  confirm(`kind of ${name}`, expected.kind, link.kind);
  // A later plugin such as tuning may have changed address and MTU, and then says so in the result.
  checkMac(name, reported, link);
  const followed = expected.checkLower?.(link);
  const mtu = reported?.mtu ?? (expected.mtu || undefined);
  const hasFollowed = !expected.mtu && followed === link.mtu;
  if (mtu !== undefined && !hasFollowed) confirm(`MTU of ${name}`, mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  const { ips, routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  if (ips.length === 0) return link;
  checkAddresses(
    container,
    link,
    ips.map(({ cidr }) => cidr),
  );
  checkRoutes(container, link, routes);
  return link;
}
