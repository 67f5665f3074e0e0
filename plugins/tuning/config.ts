// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { PluginConfig } from '../../src/cni/plugin-config.ts';

/** Where backups are stored unless `dataDir` says otherwise; shared with the reference. */
export const DEFAULT_DATA_DIR = '/run/cni/tuning';

/** Attributes that may appear at the top level or, with the highest precedence, in `args.cni`. */
const attributes = {
  /** Kernel parameters below `net`, value by name (`net.core.somaxconn`); the first `IFNAME` in a name becomes the interface's. */
  sysctl: z.optional(z.record(z.string(), z.string())),
  /** Hardware address of the interface, six bytes in colon, hyphen or dotted notation; empty: untouched. */
  mac: z.optional(z.string()),
  /** MTU of the interface in bytes; 0: untouched. */
  mtu: z.optional(z.int()),
  /** True switches promiscuous mode on; false leaves it alone. */
  promisc: z.optional(z.boolean()),
  /** Switches reception of all multicast packets on or off; default: untouched. */
  allmulti: z.optional(z.boolean()),
  /** Length of the transmit queue in packets; default: untouched. */
  txQLen: z.optional(z.int()),
};

/** The request as tuning sees it. */
export const TuningConf = z.extend(PluginConfig, {
  ...attributes,
  /** Directory on the host for what is to be restored on DEL; default `/run/cni/tuning`. */
  dataDir: z.optional(z.string()),
  /** Arguments of the runtime in the old style; what is present here overrides everything else. */
  args: z.optional(z.looseObject({ cni: z.optional(z.looseObject(attributes)) })),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `mac`: overrides `mac` and `CNI_ARGS` unless empty. */
      mac: z.optional(z.string()),
    }),
  ),
});
export type TuningConf = z.output<typeof TuningConf>;
