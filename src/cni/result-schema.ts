// Which values may a result hold, in each of the three layouts that results have had?
import * as z from 'zod/mini';
import { findCidr } from '../net/cidr.ts';
import { findIp } from '../net/ip.ts';

/** Resolver settings, also the `dns` key of configurations. */
export const Dns = z.looseObject({
  nameservers: z.optional(z.array(z.string())),
  domain: z.optional(z.string()),
  search: z.optional(z.array(z.string())),
  options: z.optional(z.array(z.string())),
});

const CidrText = z
  .string()
  .check(z.refine(text => findCidr(text) !== undefined, 'must be an address with a prefix length'));
/** Empty counts as absent, as in the reference. */
const GatewayText = z
  .string()
  .check(z.refine(text => text === '' || findIp(text) !== undefined, 'must be an address'));

/** A route of a result, also of the `routes` key of IPAM configurations. */
export const Route = z.looseObject({
  dst: CidrText,
  gw: z.optional(GatewayText),
  mtu: z.optional(z.int()),
  advmss: z.optional(z.int()),
  priority: z.optional(z.int()),
  table: z.optional(z.int()),
  scope: z.optional(z.int()),
});

/** `mtu`, `socketPath` and `pciID` are of 1.1.0; where an older result has them, they become those. */
const Interface = z.looseObject({
  name: z.string(),
  mac: z.optional(z.string()),
  mtu: z.optional(z.int()),
  sandbox: z.optional(z.string()),
  socketPath: z.optional(z.string()),
  pciID: z.optional(z.string()),
});

const address = { address: CidrText, gateway: z.optional(GatewayText), interface: z.optional(z.int()) };
const rest = { routes: z.optional(z.array(Route)), dns: z.optional(Dns) };
const interfaces = z.optional(z.array(Interface));

const IpFamily = z.optional(
  z.looseObject({ ip: CidrText, gateway: z.optional(GatewayText), routes: z.optional(z.array(Route)) }),
);

/** 0.1.0 and 0.2.0: one address of each family. */
export const FamiliesResult = z.looseObject({ ip4: IpFamily, ip6: IpFamily, dns: z.optional(Dns) });

/** 0.3.0 to 0.4.0: addresses say which family they are of. */
export const VersionedIpsResult = z.looseObject({
  interfaces,
  ips: z.optional(z.array(z.looseObject({ version: z.optional(z.string()), ...address }))),
  ...rest,
});

/** 1.0.0 and 1.1.0. */
export const IpsResult = z.looseObject({
  interfaces,
  ips: z.optional(z.array(z.looseObject(address))),
  ...rest,
});
