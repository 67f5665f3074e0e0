// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { PortMapping } from '../../src/cni/capabilities.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { decode } from '../../src/cni/json.ts';
import { PluginConfig } from '../../src/cni/plugin-config.ts';

/**
 * The request as portmap sees it. What the mappings say is looked at when they are made and checked, not when they are
 * removed: a configuration that went bad can still be cleaned up after.
 */
export const PortmapConf = z.extend(PluginConfig, {
  /** Packet filter to program; only `nftables` can be. */
  backend: z.optional(z.string()),
  /** Give forwarded connections from the pod's own subnet and from 127.0.0.0/8 an address of the host as source. */
  snat: z._default(z.boolean(), true),
  /** Give every forwarded connection an address of the host as source; needs `snat`. */
  masqAll: z._default(z.boolean(), false),
  /** Ignored: forwarded connections are recognized without packet marks. */
  markMasqBit: z.optional(z.int()),
  /** Refused: belongs to the iptables backend. */
  externalSetMarkChain: z.optional(z.string()),
  /** Refused: maps have no place for further conditions. */
  conditionsV4: z.optional(z.array(z.string())),
  /** Refused: maps have no place for further conditions. */
  conditionsV6: z.optional(z.array(z.string())),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `portMappings`: the ports of the host that lead to the pod. */
      portMappings: z.optional(z.unknown()),
    }),
  ),
});
export type PortmapConf = z.output<typeof PortmapConf>;

/**
 * Refuses what this link cannot do, before anything is touched.
 * @throws CniError 7, or 2 for keys that are not supported
 */
export function validatePortmapConf(conf: PortmapConf): void {
  const { backend = 'nftables', externalSetMarkChain, conditionsV4, conditionsV6 } = conf;
  if (!['nftables', 'iptables'].includes(backend)) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "backend": "${backend}": expected "nftables", or nothing for the default`,
    );
  }
  const unsupported = {
    backend: backend === 'iptables' ? backend : undefined,
    externalSetMarkChain: externalSetMarkChain || undefined,
    conditionsV4: conditionsV4?.length ? conditionsV4 : undefined,
    conditionsV6: conditionsV6?.length ? conditionsV6 : undefined,
  };
  for (const [key, value] of Object.entries(unsupported)) {
    if (value === undefined) continue;
    throw new CniError(
      ErrorCode.unsupportedField,
      `Cannot use "${key}": ${JSON.stringify(value)}: ports are mapped with nf_tables maps, which have no place for it`,
      { details: `remove "${key}", or use another portmap executable for this network` },
    );
  }
}

/**
 * The mappings asked for; none when the runtime sent none.
 * @throws CniError 7 naming the value
 */
export function parsePortMappings(conf: PortmapConf): PortMapping[] {
  const raw = conf.runtimeConfig?.portMappings;
  return raw === undefined ? [] : decode(z.array(PortMapping), raw, '"runtimeConfig.portMappings"');
}
