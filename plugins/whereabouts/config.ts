// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { PluginConfig, Route } from '../../src/cni/schemas.ts';

/** A range from which one address is allocated. */
const RangeConf = z.looseObject({
  range: z.optional(z.string()),
  range_start: z.optional(z.string()),
  range_end: z.optional(z.string()),
  exclude: z.optional(z.array(z.string())),
});
export type RangeConf = z.output<typeof RangeConf>;

/** The request; the flat file has the same keys as `ipam`. */
export const WhereaboutsConf = z.extend(PluginConfig, {
  ipam: z.looseObject({
    type: z.optional(z.string()),
    /** A subnet, or first and last address joined by `-` with the prefix length: `10.1.0.5-10.1.0.9/24`. */
    range: z.optional(z.string()),
    /** First address; default: the one after the network address. */
    range_start: z.optional(z.string()),
    /** Last address; default: the one before the last of the subnet. */
    range_end: z.optional(z.string()),
    /** What is not handed out: addresses or subnets. */
    exclude: z.optional(z.array(z.string())),
    /** Further ranges, each with these four keys; one address is allocated from each. */
    ipRanges: z.optional(z.array(RangeConf)),
    /** Gateway for the result, never allocated. */
    gateway: z.optional(z.string()),
    /** Routes for the result, copied unchanged. */
    routes: z.optional(z.array(Route)),
    /** Further addresses for the result, with prefix length, and optionally a gateway. */
    addresses: z.optional(z.array(z.looseObject({ address: z.string(), gateway: z.optional(z.string()) }))),
    /** Resolver settings for the result. */
    dns: z.optional(
      z.looseObject({
        nameservers: z.optional(z.array(z.string())),
        domain: z.optional(z.string()),
        search: z.optional(z.array(z.string())),
        options: z.optional(z.array(z.string())),
      }),
    ),
    /** Reserve each address in the whole cluster, whatever range it is of. Default true. */
    enable_overlapping_ranges: z.optional(z.boolean()),
    /** Separate books for equal ranges. */
    network_name: z.optional(z.string()),
    /** Size of each node's slice; the slices are those that whereabouts' controller assigns. */
    node_slice_size: z.optional(z.string()),
    /** `kubeconfig`: path of the kubeconfig; its context names the namespace of the objects. */
    kubernetes: z.optional(
      z.looseObject({
        /** Path of the kubeconfig. */
        kubeconfig: z.optional(z.string()),
      }),
    ),
    /** A file with the keys of `ipam`, which those of the request replace. */
    configuration_path: z.optional(z.string()),
    /** Ignored: nothing waits for a lease. */
    leader_lease_duration: z.optional(z.number()),
    /** Ignored. */
    leader_renew_deadline: z.optional(z.number()),
    /** Ignored. */
    leader_retry_period: z.optional(z.number()),
    /** Ignored: the log is the runtime's. */
    log_file: z.optional(z.string()),
    /** Ignored. */
    log_level: z.optional(z.string()),
    /** Ignored: nothing is freed by a timer. */
    reconciler_cron_expression: z.optional(z.string()),
    /** Ignored. */
    sleep_for_race: z.optional(z.number()),
    /** Directory in which this node notes what it has allocated; default `/var/lib/cni/networks`. */
    dataDir: z.optional(z.string()),
  }),
});
export type WhereaboutsConf = z.output<typeof WhereaboutsConf>;
export type Ipam = WhereaboutsConf['ipam'];
