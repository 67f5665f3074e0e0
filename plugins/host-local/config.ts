// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { IpRange, PluginConfig, Route } from '../../src/cni/schemas.ts';

/** A set of ranges from which one address is allocated. */
const RangeSetConf = z.array(IpRange);

/** The request as ADD sees it. Only types are checked here; the plan decides whether ranges make sense. */
export const HostLocalConf = z.extend(PluginConfig, {
  ipam: z.looseObject({
    type: z.optional(z.string()),
    /** A single range in the old style, in CIDR notation; becomes a range set of its own before `ranges`. */
    subnet: z.optional(z.string()),
    /** First address of the single range; default: the one after the network address. */
    rangeStart: z.optional(z.string()),
    /** Last address of the single range; default: the one before the broadcast address (IPv6: the last one). */
    rangeEnd: z.optional(z.string()),
    /** Gateway of the single range, never allocated; default: the one after the network address. */
    gateway: z.optional(z.string()),
    /** What the single range does not hand out: addresses, subnets, or first and last address joined by `-`. */
    exclude: z.optional(z.array(z.string())),
    /** The only addresses that the single range hands out, in the same notation. */
    addresses: z.optional(z.array(z.string())),
    /** Range sets; one address is allocated from each set, from its first range with a free one. */
    ranges: z.optional(z.array(RangeSetConf)),
    /** Routes for the result, copied unchanged. */
    routes: z.optional(z.array(Route)),
    /** Directory with one subdirectory of leases per network; default `/var/lib/cni/networks`. */
    dataDir: z.optional(z.string()),
    /** Release leases from before the last boot, which no container survives. Default `true`. */
    reclaimAfterReboot: z.optional(z.boolean()),
    /** A file in resolv.conf(5) format whose content becomes `dns` of the result; default: none. */
    resolvConf: z.optional(z.string()),
  }),
  /** Arguments as older runtimes pass them. */
  args: z.optional(
    z.looseObject({
      cni: z.optional(
        z.looseObject({
          /** Requested addresses, with or without prefix length. */
          ips: z.optional(z.array(z.string())),
        }),
      ),
    }),
  ),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `ips`: requested addresses, with or without prefix length. */
      ips: z.optional(z.array(z.string())),
      /** Capability `ipRanges`: range sets that precede the configured ones. */
      ipRanges: z.optional(z.array(RangeSetConf)),
    }),
  ),
});
export type HostLocalConf = z.output<typeof HostLocalConf>;
