// What does this node use that a new network must not use as well?
import { devicesOf, loadAbouts, rangesOf } from '../../cni/network-plugins.ts';
import { type Cidr, cidrsOverlap, findCidr, parseCidr, renderCidr } from '../../net/cidr.ts';
import { findIp, IP_BITS } from '../../net/ip.ts';
import { readHost, readHostRoutes } from '../../node/devices.ts';
import type { CommandCall } from '../command.ts';
import { factsFor, readNodeFor } from '../node/read.ts';
import type { Taken } from './subnets.ts';

/** Names and addresses that are in use. */
export interface InUse {
  /** By routes, devices, lists and attachments. */
  readonly addresses: readonly Taken[];
  /** By lists only: containers of a macvlan may have addresses of the node's own LAN. */
  readonly ranges: readonly Taken[];
  /** Devices that exist, or that a configured network makes. */
  readonly devices: ReadonlySet<string>;
  /** The file of each configured network. */
  readonly networks: ReadonlyMap<string, string>;
}

/** Every host has them, so they are no reason to avoid a subnet. */
const EVERYWHERE = ['fe80::/10', 'ff00::/8', '224.0.0.0/4', '127.0.0.0/8', '::1/128'].map(parseCidr);

/** Asks the kernel and reads the lists and records. */
export async function readInUse(call: CommandCall): Promise<InUse> {
  const findAbout = await loadAbouts(call.plugins.find, call.plugins.types);
  const facts = factsFor(call);
  const { networks } = facts.networks();
  const devices = [...readHost(facts.kernel).byIndex.values()];
  const ranges = networks.flatMap(({ list }) =>
    rangesOf(list, findAbout).map(({ range: { subnet } }) => ({
      cidr: subnet,
      by: `subnet ${renderCidr(subnet)} of network "${list.name}"`,
    })),
  );
  const routes = readHostRoutes(facts.kernel).map(({ destination, device }) =>
    taken(findCidr(destination), `the route to ${destination} on "${device}"`),
  );
  const addresses = devices.flatMap(({ name, addresses: own }) =>
    own
      .map(text => text.replace(/\/.*/, ''))
      .map(address => taken(hostCidr(address), `address ${address} of "${name}"`)),
  );
  const { attachments } = await readNodeFor(call, { facts });
  const attached = attachments.flatMap(({ network, addresses: own }) =>
    own.map(address => taken(findCidr(address), `address ${address} of a container on network "${network}"`)),
  );
  const made = networks.flatMap(({ list }) => devicesOf(list, findAbout).flatMap(({ name }) => name ?? []));
  return {
    addresses: [...ranges, ...[...routes, ...addresses, ...attached].flat()],
    ranges,
    devices: new Set([...devices.map(({ name }) => name), ...made]),
    networks: new Map(networks.map(({ file, list }) => [list.name, file])),
  };
}

function taken(cidr: Cidr | undefined, by: string): Taken[] {
  if (cidr === undefined || cidr.prefix === 0) return [];
  return EVERYWHERE.some(one => cidrsOverlap(one, cidr)) ? [] : [{ cidr, by }];
}

function hostCidr(address: string): Cidr | undefined {
  const ip = findIp(address);
  return ip === undefined ? undefined : { ip, prefix: IP_BITS[ip.family] };
}
