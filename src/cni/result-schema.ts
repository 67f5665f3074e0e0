// Which values may a result contain, in each of the three historical layouts?
import * as z from 'zod/mini';
import { findCidr } from '../net/cidr.ts';
import { findIp } from '../net/ip.ts';
import { optionalInt, optionalText, optionalTexts } from './schema-parts.ts';

/** Resolver settings, also the `dns` key of configurations. */
export const Dns = z.looseObject({
  nameservers: optionalTexts,
  domain: optionalText,
  search: optionalTexts,
  options: optionalTexts,
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
  gws: z.optional(z.array(GatewayText)),
  mtu: optionalInt,
  advmss: optionalInt,
  priority: optionalInt,
  table: optionalInt,
  scope: optionalInt,
});

/** `mtu`, `socketPath` and `pciID` exist since 1.1.0. If an older result has them, they are treated as those of 1.1.0. */
const Interface = z.looseObject({
  name: z.string(),
  mac: optionalText,
  mtu: optionalInt,
  sandbox: optionalText,
  socketPath: optionalText,
  pciID: optionalText,
});

const address = { address: CidrText, gateway: z.optional(GatewayText), interface: optionalInt };
const rest = { routes: z.optional(z.array(Route)), dns: z.optional(Dns) };
const interfaces = z.optional(z.array(Interface));

const IpFamily = z.optional(
  z.looseObject({ ip: CidrText, gateway: z.optional(GatewayText), routes: z.optional(z.array(Route)) }),
);

/** 0.1.0 and 0.2.0: one address of each family. */
export const FamiliesResult = z.looseObject({ ip4: IpFamily, ip6: IpFamily, dns: z.optional(Dns) });

/** 0.3.0 to 0.4.0: each address states its family. */
export const VersionedIpsResult = z.looseObject({
  interfaces,
  ips: z.optional(z.array(z.looseObject({ version: optionalText, ...address }))),
  ...rest,
});

/** 1.0.0 and 1.1.0. */
export const IpsResult = z.looseObject({
  interfaces,
  ips: z.optional(z.array(z.looseObject(address))),
  ...rest,
});
