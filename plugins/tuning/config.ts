// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { PluginConfig } from '../../src/cni/schemas.ts';

/** Where backups are stored unless `dataDir` says otherwise; shared with the reference. */
export const DEFAULT_DATA_DIR = '/run/cni/tuning';

/** Attributes that may appear at the top level or, with the highest precedence, in `args.cni`. */
const attributes = {
  /** Sysctls below `net`, such as `net.core.somaxconn`, and their values; the first `IFNAME` in a name is replaced by the interface's name. */
  sysctl: z.optional(z.record(z.string(), z.string())),
  /** Hardware address of the interface, six bytes in colon, hyphen or dotted notation; empty: unchanged. */
  mac: z.optional(z.string()),
  /** MTU of the interface in bytes; 0: unchanged. */
  mtu: z.optional(z.int()),
  /** True turns promiscuous mode on; false leaves it unchanged. */
  promisc: z.optional(z.boolean()),
  /** Turns reception of all multicast packets on or off; default: unchanged. */
  allmulti: z.optional(z.boolean()),
  /** Length of the transmit queue in packets; default: unchanged. */
  txQLen: z.optional(z.int()),
};

/** The request as tuning sees it. */
export const TuningConf = z.extend(PluginConfig, {
  ...attributes,
  /** Directory on the host for the original values, which DEL restores; default `/run/cni/tuning`. */
  dataDir: z.optional(z.string()),
  /** Arguments as older runtimes pass them; keys that are present here override all other sources. */
  args: z.optional(z.looseObject({ cni: z.optional(z.looseObject(attributes)) })),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `mac`: overrides `mac` and `CNI_ARGS` unless empty. */
      mac: z.optional(z.string()),
    }),
  ),
});
export type TuningConf = z.output<typeof TuningConf>;
