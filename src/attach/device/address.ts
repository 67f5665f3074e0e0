// How does a device in the container get what its IPAM plugin assigns?
//
// The device exists before the IPAM plugin is called, because some of them talk through it: dhcp sends its requests from there.
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { PluginConfig } from '../../cni/plugin-config.ts';
import type { Result } from '../../cni/result.ts';
import { askAll } from '../../netlink/ask.ts';
import { type Link, linkQuestion, setLink } from '../../netlink/rtnl/link.ts';
import type { Call } from '../../plugin/define.ts';
import type { ContainerAddressing } from '../addressing.ts';
import { probeAddresses } from '../conflict.ts';
import { configureContainer, ignoreNeighbours } from '../container.ts';
import { hostEndOf, refuseHostsOwn } from '../hosts-own.ts';
import { prepareIpam } from '../ipam.ts';
import { awaitTraffic } from '../ready.ts';
import { settleAddresses } from '../settle.ts';
import { planAddresses } from './plan.ts';

/** A device of the container, and what was assigned to it. */
export interface Addressed {
  readonly link: Link;
  /** The answer of the IPAM plugin; undefined on layer 2 only. */
  readonly ipam: Result | undefined;
  readonly addressing: ContainerAddressing | undefined;
}

/** How a device gets its addresses. */
export interface AddressOptions {
  /** Addresses and routes that an earlier plugin of the chain obtained, in place of the IPAM plugin's. */
  readonly given?: Result | undefined;
  /**
   * Others share the link, so IPv6 duplicate address detection stays enabled and is awaited. False for a device without
   * neighbours, such as a dummy.
   */
  readonly shared: boolean;
  /** Ask the link for the IPv4 addresses before they are used (RFC 5227), which takes up to 200 ms. */
  readonly probe?: boolean;
}

/**
 * Makes a device, asks the IPAM plugin, if there is one, gives the device its addresses and routes, and brings it up. Waits until
 * packets flow and, on a shared link, until IPv6 addresses are known to be unique. When ADD fails, the addresses are released.
 * @param make makes the device, and registers how it is deleted
 * @throws CniError 7 when the IPAM plugin gave no address, CniError 11 when another host has one
 */
export async function addDevice(
  call: Call<PluginConfig>,
  make: () => Pick<Link, 'index' | 'name'>,
  { given, shared, probe = false }: AddressOptions,
): Promise<Addressed> {
  const ask = prepareIpam(call);
  const link = make();
  ignoreNeighbours(call, link.name);
  const ipam = given ?? (await ask());
  const addressing = ipam && planAddresses(ipam, call.conf.ipam?.type);
  let current = lookAgain(call, link);
  // Probes of a device do not reach the node, which is below it.
  if (addressing) refuseHostsOwn(call, hostEndOf(current), addressing.ips);
  const ips = (addressing?.ips ?? []).map(({ cidr }) => cidr.ip);
  if (probe && ips.some(({ family }) => family === 4)) {
    const stages = [{ socket: call.container, link: current, ips: [] }];
    await probeAddresses(call, current, stages, addressing?.ips ?? []);
    current = lookAgain(call, link);
  }
  if (addressing) configureContainer(call, current, addressing, shared);
  else setLink(call.container, current.index, { up: true });
  await awaitTraffic(call.log, [{ socket: call.container, link: current, ips: shared ? [] : ips }]);
  if (shared && ips.some(({ family }) => family === 6)) await settleAddresses(call.container, current);
  return { link: current, ipam, addressing };
}

/** The IPAM plugin may have taken seconds, and may have brought the device up. */
function lookAgain(call: Call, { index, name }: Pick<Link, 'index' | 'name'>): Link {
  const [current] = askAll(call.container, [linkQuestion(index)]);
  if (current?.name === name) return current;
  throw new CniError(
    ErrorCode.internal,
    `Cannot give "${name}" its addresses: it was ${current ? 'renamed' : 'deleted'} while the IPAM plugin worked; call ADD again`,
  );
}
