// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { PortMapping } from '../../src/cni/capabilities.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { decode } from '../../src/cni/json.ts';
import { PluginConfig } from '../../src/cni/plugin-config.ts';
import type { IptablesOptions } from './iptables-rules.ts';

/** The reference's choice, which other users of marks know about. */
const MARK_BIT = 13;

/**
 * The request as portmap sees it. What the mappings say is looked at when they are made and checked, not when they are
 * removed: a configuration that went bad can still be cleaned up after.
 */
export const PortmapConf = z.extend(PluginConfig, {
  /** Packet filter to program: `nftables` or `iptables`. */
  backend: z.optional(z.string()),
  /** Give forwarded connections from the pod's own subnet and from 127.0.0.0/8 an address of the host as source. */
  snat: z._default(z.boolean(), true),
  /** Give every forwarded connection an address of the host as source; needs `snat`. */
  masqAll: z._default(z.boolean(), false),
  /** With iptables: bit of the packet mark that says "masquerade", 0 to 31; nftables needs no marks and ignores it. */
  markMasqBit: z.optional(z.int()),
  /** With iptables: chain of somebody else that marks what is to be masqueraded, and sees to that too. */
  externalSetMarkChain: z.optional(z.string()),
  /** With iptables: further matches for IPv4, each word an element: `["!", "-s", "192.0.2.0/24"]`. */
  conditionsV4: z.optional(z.array(z.string())),
  /** With iptables: further matches for IPv6. */
  conditionsV6: z.optional(z.array(z.string())),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `portMappings`: the ports of the host that lead to the pod. */
      portMappings: z.optional(z.unknown()),
    }),
  ),
});
export type PortmapConf = z.output<typeof PortmapConf>;

/** Packet filters that can map ports. */
export type Backend = 'nftables' | 'iptables';

/**
 * The packet filter of the configuration: the one it names, or the one that its options belong to.
 * @throws CniError 7 when it names neither
 */
export function backendOf(conf: PortmapConf): Backend {
  const { backend } = conf;
  if (backend === undefined || backend === '') return hasIptablesWords(conf) ? 'iptables' : 'nftables';
  if (backend === 'nftables' || backend === 'iptables') return backend;
  throw invalid(
    `Cannot use "backend": "${backend}": expected "nftables" or "iptables", or nothing for the default`,
  );
}

/**
 * Refuses what this link cannot do, before anything is touched.
 * @throws CniError 7, or 2 for keys that are not supported
 */
export function validatePortmapConf(conf: PortmapConf): void {
  if (backendOf(conf) === 'iptables') refuseForIptables(conf);
  else refuseForNftables(conf);
}

/** What the rules of iptables depend on. */
export function iptablesOptionsOf(conf: PortmapConf): IptablesOptions {
  const { snat, masqAll, markMasqBit = MARK_BIT, externalSetMarkChain, conditionsV4, conditionsV6 } = conf;
  return {
    snat,
    masqAll,
    mark: 2 ** markMasqBit,
    ...(externalSetMarkChain ? { externalSetMarkChain } : {}),
    conditions: { 4: conditionsV4 ?? [], 6: conditionsV6 ?? [] },
  };
}

/**
 * The mappings asked for; none when the runtime sent none.
 * @throws CniError 7 naming the value
 */
export function parsePortMappings(conf: PortmapConf): PortMapping[] {
  const raw = conf.runtimeConfig?.portMappings;
  return raw === undefined ? [] : decode(z.array(PortMapping), raw, '"runtimeConfig.portMappings"');
}

/** Words of iptables begin with a dash or an exclamation mark, those of nft do not. */
function hasIptablesWords({ externalSetMarkChain, conditionsV4, conditionsV6 }: PortmapConf): boolean {
  return (
    Boolean(externalSetMarkChain) ||
    [conditionsV4, conditionsV6].some(words => /^[-!]/.test(words?.[0] ?? ''))
  );
}

function refuseForNftables({ externalSetMarkChain, conditionsV4, conditionsV6 }: PortmapConf): void {
  const unsupported = {
    externalSetMarkChain: externalSetMarkChain || undefined,
    conditionsV4: conditionsV4?.length ? conditionsV4 : undefined,
    conditionsV6: conditionsV6?.length ? conditionsV6 : undefined,
  };
  for (const [key, value] of Object.entries(unsupported)) {
    if (value === undefined) continue;
    throw new CniError(
      ErrorCode.unsupportedField,
      `Cannot use "${key}": ${JSON.stringify(value)}: ports are mapped with nf_tables maps, which have no place for it`,
      { details: `remove "${key}", or write it for "backend": "iptables"` },
    );
  }
}

function refuseForIptables(conf: PortmapConf): void {
  const { markMasqBit, externalSetMarkChain, conditionsV4 = [], conditionsV6 = [] } = conf;
  if (externalSetMarkChain && markMasqBit !== undefined) {
    throw invalid('Cannot use "externalSetMarkChain" and "markMasqBit": the chain says which mark it sets');
  }
  if (markMasqBit !== undefined && (markMasqBit < 0 || markMasqBit > 31)) {
    throw invalid(`Cannot use "markMasqBit": ${markMasqBit}: marks have the bits 0 to 31`);
  }
  if (externalSetMarkChain && !/^[^\s"'\\!-][^\s"'\\]{0,27}$/.test(externalSetMarkChain)) {
    throw invalid(
      `Cannot use "externalSetMarkChain": "${externalSetMarkChain}": it is not the name of a chain`,
    );
  }
  for (const [key, words] of Object.entries({ conditionsV4, conditionsV6 })) {
    const first = words[0];
    if (first !== undefined && !/^[-!]/.test(first)) {
      throw invalid(
        `Cannot use "${key}": ${JSON.stringify(words)}: iptables has no match that begins with "${first}"`,
      );
    }
    const odd = words.find(word => word === '' || /\p{Cc}/u.test(word));
    if (odd !== undefined)
      throw invalid(`Cannot use "${key}": ${JSON.stringify(odd)} cannot be a word of a rule`);
    // The rule leads to the container's chain; another command or target would make it another rule.
    const command = words.find(word =>
      /^(-[jgtADICRNXFZPEL]|--(jump|goto|table|append|delete|insert))/.test(word),
    );
    if (command) throw invalid(`Cannot use "${key}": "${command}" is not a match`);
  }
}

function invalid(message: string): CniError {
  return new CniError(ErrorCode.invalidConfig, message);
}
