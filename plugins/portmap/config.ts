// What may be configured, and what does each option mean?

import * as z from 'zod/mini';
import { CniError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { decode } from '../../src/cni/json.ts';
import { PluginConfig, PortMapping } from '../../src/cni/schemas.ts';
import { FAMILIES } from '../../src/net/ip.ts';
import type { IptablesOptions } from './iptables-rules.ts';
import type { Backend, Means } from './plan.ts';
import { conditionHandle, parseConditions, wordsOf } from './sets.ts';

/** The reference's default, which other users of packet marks know about. */
const MARK_BIT = 13;

/**
 * The request as portmap sees it. Mappings are validated by ADD and CHECK, not by DEL, so an attachment can still be deleted
 * after its configuration has become invalid.
 */
export const PortmapConf = z.extend(PluginConfig, {
  /** Packet filter to program: `nftables` or `iptables`. */
  backend: z.optional(z.string()),
  /** Masquerade forwarded connections from the pod's own subnet and from 127.0.0.0/8. */
  snat: z._default(z.boolean(), true),
  /** Masquerade every forwarded connection; needs `snat`. */
  masqAll: z._default(z.boolean(), false),
  /** With iptables: bit of the packet mark that requests masquerading, 0 to 31; ignored by nftables, which needs no marks. */
  markMasqBit: z.optional(z.int()),
  /** With iptables: existing chain that marks packets to be masqueraded; its owner must masquerade them. */
  externalSetMarkChain: z.optional(z.string()),
  /** Further matches for IPv4, in the syntax of the backend: `["ip", "saddr", "192.0.2.0/24"]`, `["!", "-s", "192.0.2.0/24"]`. */
  conditionsV4: z.optional(z.array(z.string())),
  /** Further matches for IPv6. */
  conditionsV6: z.optional(z.array(z.string())),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `portMappings`: the host ports to forward to the pod. */
      portMappings: z.optional(z.unknown()),
    }),
  ),
});
export type PortmapConf = z.output<typeof PortmapConf>;

/**
 * The packet filter of the configuration: the one it names, or the one that its options belong to.
 * @throws CniError 7 for an unknown name
 */
export function backendOf(conf: PortmapConf): Backend {
  const { backend } = conf;
  if (backend === undefined || backend === '') return hasIptablesWords(conf) ? 'iptables' : 'nftables';
  if (backend === 'nftables' || backend === 'iptables') return backend;
  throw invalidConfig(
    `Cannot use "backend": "${backend}": expected "nftables" or "iptables", or nothing for the default`,
  );
}

/**
 * Validates the options; called before anything is changed.
 * @throws CniError 7, or 2 for unsupported keys
 */
export function validatePortmapConf(conf: PortmapConf): void {
  if (backendOf(conf) === 'iptables') refuseForIptables(conf);
  else refuseForNftables(conf);
}

/** What the configuration says about the packet filter: that it must be this one, would be, or is left to us. */
export function choiceOf(conf: PortmapConf): { readonly backend: Backend; readonly isFree: boolean } {
  const words = [conf.conditionsV4, conf.conditionsV6].some(list => list?.[0]);
  const isFree = !words && !conf.externalSetMarkChain && conf.backend !== 'nftables';
  return { backend: backendOf(conf), isFree };
}

/** The options that the elements of the maps depend on. */
export function meansOf(conf: PortmapConf, backend = backendOf(conf)): Means {
  const { snat, masqAll } = conf;
  const parsed = backend === 'nftables' ? parseConditions(conf) : [];
  const handleFor = (family: 4 | 6): string => {
    if (backend === 'nftables') return parsed.find(one => one.family === family)?.handle ?? '';
    const words = wordsOf(conf, family);
    return words.length ? conditionHandle(family, words.join(' ')) : '';
  };
  return {
    backend,
    conditions: { 4: handleFor(4), 6: handleFor(6) },
    masquerading: snat ? (masqAll ? 'all' : 'local') : 'none',
  };
}

export function iptablesOptionsOf(conf: PortmapConf): IptablesOptions {
  const { snat, masqAll, markMasqBit = MARK_BIT, externalSetMarkChain } = conf;
  return {
    snat,
    masqAll,
    mark: 2 ** markMasqBit,
    ...(externalSetMarkChain ? { externalSetMarkChain } : {}),
    conditions: { 4: wordsOf(conf, 4), 6: wordsOf(conf, 6) },
  };
}

/**
 * The requested mappings; empty when the runtime sent none.
 * @throws CniError 7 naming the value
 */
export function parsePortMappings(conf: PortmapConf): PortMapping[] {
  const raw = conf.runtimeConfig?.portMappings;
  return raw === undefined ? [] : decode(z.array(PortMapping), raw, '"runtimeConfig.portMappings"');
}

/** Words of iptables begin with a dash or an exclamation mark, those of nft do not. */
function hasIptablesWords({ externalSetMarkChain, conditionsV4, conditionsV6 }: PortmapConf): boolean {
  return Boolean(externalSetMarkChain) || [conditionsV4, conditionsV6].some(isForIptables);
}

function isForIptables(words: readonly string[] | undefined): boolean {
  return /^[-!]/.test(words?.[0] ?? '');
}

function refuseForNftables(conf: PortmapConf): void {
  const { externalSetMarkChain, conditionsV4, conditionsV6 } = conf;
  if (externalSetMarkChain) {
    throw new CniError(
      ErrorCode.unsupportedField,
      `Cannot use "externalSetMarkChain": "${externalSetMarkChain}": nftables cannot jump to a chain of iptables`,
      { details: 'remove it, since nftables masquerades without marks, or set "backend": "iptables"' },
    );
  }
  for (const [key, words] of Object.entries({ conditionsV4, conditionsV6 })) {
    if (!isForIptables(words)) continue;
    throw new CniError(
      ErrorCode.unsupportedField,
      `Cannot use "${key}": ${JSON.stringify(words)}: this is iptables syntax, and "backend" is nftables`,
      {
        details: 'use nft syntax, such as ["ip", "saddr", "192.0.2.0/24"], or set "backend": "iptables"',
      },
    );
  }
  parseConditions(conf);
}

function refuseForIptables(conf: PortmapConf): void {
  const { markMasqBit, externalSetMarkChain } = conf;
  if (externalSetMarkChain && markMasqBit !== undefined) {
    throw invalidConfig(
      'Cannot use "externalSetMarkChain" and "markMasqBit": the chain determines its own mark',
    );
  }
  if (markMasqBit !== undefined && (markMasqBit < 0 || markMasqBit > 31)) {
    throw invalidConfig(`Cannot use "markMasqBit": ${markMasqBit}: marks have the bits 0 to 31`);
  }
  if (externalSetMarkChain && !/^[^\s"'\\!-][^\s"'\\]{0,27}$/.test(externalSetMarkChain)) {
    throw invalidConfig(
      `Cannot use "externalSetMarkChain": "${externalSetMarkChain}": it is not the name of a chain`,
    );
  }
  for (const family of FAMILIES) {
    const key = `conditionsV${family}`;
    const words = wordsOf(conf, family);
    const first = words[0];
    if (first !== undefined && !isForIptables(words)) {
      throw invalidConfig(
        `Cannot use "${key}": ${JSON.stringify(words)}: iptables has no match that begins with "${first}"`,
      );
    }
    const odd = words.find(word => word === '' || /\p{Cc}/u.test(word));
    if (odd !== undefined)
      throw invalidConfig(`Cannot use "${key}": ${JSON.stringify(odd)} cannot be part of a rule`);
    // The rule must jump to the container's chain; another command or target would make it a different rule.
    const command = words.find(word =>
      /^(-[jgtADICRNXFZPEL]|--(jump|goto|table|append|delete|insert))/.test(word),
    );
    if (command) throw invalidConfig(`Cannot use "${key}": "${command}" is not a match`);
  }
}
