// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { CLAIM_ARG } from '../../src/cni/env.ts';
import { PluginConfig, Route } from '../../src/cni/schemas.ts';

/** The capability by which the runtime passes a pod's annotations. */
export const ANNOTATIONS = 'io.kubernetes.cri.pod-annotations';

/** What divides a pool; `src/pools` decides whether it makes sense. */
const poolMembers = {
  /** Subnets of the pool, each with `ipv4`, `ipv6` or both; default: those of the cluster's object `Pool`. */
  subnets: z.optional(z.array(z.looseObject({ ipv4: z.optional(z.string()), ipv6: z.optional(z.string()) }))),
  /** Addresses in a block: a power of two, which never changes while nodes have blocks. Default 64; 1 for single addresses. */
  blockSize: z.optional(z.int()),
  /** `routed`: each block is a subnet with a gateway, on one node. `flat`: all nodes are on one link. Default `routed`. */
  layout: z.optional(z.enum(['routed', 'flat'])),
  /** With `"layout": "flat"`: the routers, never handed out; a subnet reports the one in it, else the first. Default: none. */
  gateways: z.optional(z.array(z.string())),
  /** What is not handed out: addresses, subnets, or first and last address joined by `-`. */
  exclude: z.optional(z.array(z.string())),
};

/** A further pool, and the namespaces that it is for. */
const FurtherPool = z.looseObject({
  pool: z.string(),
  /** In `pools`: namespaces whose pods get addresses of this pool; `team-*` for all that begin so. */
  namespaces: z.optional(z.array(z.string())),
  ...poolMembers,
});

/** The request as ADD sees it. Only types are checked here; src/pools decides whether a pool makes sense. */
export const ClusterConf = z.extend(PluginConfig, {
  ipam: z.looseObject({
    type: z.optional(z.string()),
    /** Name of the pool. Default `default`. */
    pool: z.optional(z.string()),
    /** Path of the kubeconfig for the cluster that all nodes share; default: none, and blocks are files in `dataDir`. */
    kubeconfig: z.optional(z.string()),
    ...poolMembers,
    /** Further pools, each with `pool`, the options of a pool, and `namespaces`; pods may name them in an annotation. */
    pools: z.optional(z.array(FurtherPool)),
    /** Seconds that the single address of a StatefulSet's pod is kept for the next pod of its name. Default 0. */
    keep: z.optional(z.int()),
    /** Name of this node in the cluster; default: `CATENA_NODE_NAME`, else as the kubeconfig says, else the host name. */
    node: z.optional(z.string()),
    /** With fewer free addresses, and pods that have some, the daemon claims another block in advance. Default: an eighth of a block. */
    lowWater: z.optional(z.int()),
    /** Seconds after which an empty block goes back to the pool, unless `lowWater` counts on it. Default 300. */
    coolDown: z.optional(z.int()),
    /** Seconds after which the blocks of a node that the cluster no longer has go back to the pool. Default 3600. */
    grace: z.optional(z.int()),
    /** Seconds that ADD waits for the cluster when it needs a block. Default 10. */
    timeout: z.optional(z.int()),
    /** Routes for the result, copied unchanged. */
    routes: z.optional(z.array(Route)),
    /** Directory with one subdirectory of leases per network; default `/var/lib/cni/networks`. */
    dataDir: z.optional(z.string()),
    /** Release leases from before the last boot, which no container survives. Default `true`. */
    reclaimAfterReboot: z.optional(z.boolean()),
  }),
  /** Arguments as the delegate runner passes them. */
  args: z.optional(
    z.looseObject({
      cni: z.optional(
        z.looseObject({
          [CLAIM_ARG]: z.optional(
            z.object({
              namespace: z.string(),
              name: z.string(),
              uid: z.string(),
              joins: z.optional(z.boolean()),
            }),
          ),
        }),
      ),
    }),
  ),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `ips`: requested addresses, with or without prefix length; for pools of single addresses. */
      ips: z.optional(z.array(z.string())),
      [ANNOTATIONS]: z.optional(z.record(z.string(), z.string())),
    }),
  ),
});
export type ClusterConf = z.output<typeof ClusterConf>;
