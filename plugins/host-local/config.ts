// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { IpRange } from '../../src/cni/capabilities.ts';
import { PluginConfig } from '../../src/cni/plugin-config.ts';
import { Route } from '../../src/cni/result-schema.ts';

/** A set of ranges from which one address is handed out. */
const RangeSetConf = z.array(IpRange);

/** What is needed to find leases. DEL reads nothing else, so addresses can be released even if other options are invalid. */
export const LeaseConf = z.extend(PluginConfig, {
  ipam: z.looseObject({
    type: z.optional(z.string()),
    dataDir: z.optional(z.string()),
    reclaimAfterReboot: z.optional(z.boolean()),
  }),
});
export type LeaseConf = z.output<typeof LeaseConf>;

/** The request as ADD sees it. Only types are checked here; the plan decides whether ranges make sense. */
export const HostLocalConf = z.extend(PluginConfig, {
  ipam: z.looseObject({
    type: z.optional(z.string()),
    /** A single range in the old style, as CIDR; becomes a range set of its own before `ranges`. */
    subnet: z.optional(z.string()),
    /** First address of the single range; default: the one after the network address. */
    rangeStart: z.optional(z.string()),
    /** Last address of the single range; default: the one before the broadcast address (IPv6: the last one). */
    rangeEnd: z.optional(z.string()),
    /** Gateway of the single range, never handed out; default: the one after the network address. */
    gateway: z.optional(z.string()),
    /** Range sets; one address is handed out from each set, from the first range of the set that has one free. */
    ranges: z.optional(z.array(RangeSetConf)),
    /** Routes for the result, passed on as they are. */
    routes: z.optional(z.array(Route)),
    /** Directory with one folder of leases per network; default `/var/lib/cni/networks`. */
    dataDir: z.optional(z.string()),
    /** Take leases of an earlier boot for free; no container survives a restart of the machine. Default `true`. */
    reclaimAfterReboot: z.optional(z.boolean()),
    /** A file in the format of resolv.conf(5) that becomes `dns` of the result; default: none. */
    resolvConf: z.optional(z.string()),
  }),
  /** Arguments of the runtime in the old style. */
  args: z.optional(
    z.looseObject({
      cni: z.optional(
        z.looseObject({
          /** Addresses asked for, with or without prefix length. */
          ips: z.optional(z.array(z.string())),
        }),
      ),
    }),
  ),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `ips`: addresses asked for, with or without prefix length. */
      ips: z.optional(z.array(z.string())),
      /** Capability `ipRanges`: range sets that come before the configured ones. */
      ipRanges: z.optional(z.array(RangeSetConf)),
    }),
  ),
});
export type HostLocalConf = z.output<typeof HostLocalConf>;
