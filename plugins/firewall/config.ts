// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/plugin-config.ts';

/** Who may begin to talk to a container: everybody, whoever is not in another closed network, or nobody of its own either. */
export const INGRESS_POLICIES = ['open', 'same-bridge', 'isolated'] as const;
export type IngressPolicy = (typeof INGRESS_POLICIES)[number];

/** What a configuration may name; nf_tables has the rules and tells who has what in any case. */
export const BACKENDS = ['nftables', 'iptables', 'firewalld'] as const;
export type Backend = (typeof BACKENDS)[number];
/** Those that have to be told as well. */
export type Other = Exclude<Backend, 'nftables'>;

/**
 * The request as firewall sees it. What it says is looked at when rules are made and checked, not when they are removed:
 * a configuration that went bad can still be cleaned up after.
 */
export const FirewallConf = z.extend(PluginConfig, {
  /** Packet filter to program: `nftables`, or besides it `iptables` or `firewalld`. */
  backend: z.optional(z.string()),
  /** Who may begin to talk to the pod: `open`, `same-bridge` or `isolated`. */
  ingressPolicy: z.optional(z.string()),
  /** With iptables: chain of the operator's own rules, which go before those of this link. */
  iptablesAdminChainName: z._default(z.string(), 'CNI-ADMIN'),
  /** With firewalld: zone that gets the pod's addresses. */
  firewalldZone: z._default(z.string(), 'trusted'),
});
export type FirewallConf = z.output<typeof FirewallConf>;

/** The configuration when all of it makes sense. */
export interface FirewallOptions {
  /** Absent when it is left to us. */
  readonly backend?: Backend;
  readonly policy: IngressPolicy;
  readonly adminChain: string;
  readonly zone: string;
}

/** iptables: XT_EXTENSION_MAXNAMELEN, less the terminating zero. */
const CHAIN_NAME_MAX_LENGTH = 28;

/**
 * Refuses what this link cannot do, before anything is touched.
 * @throws CniError 7
 */
export function parseFirewallConf(conf: FirewallConf): FirewallOptions {
  const backend = oneOf(BACKENDS, 'backend', conf.backend);
  const policy = oneOf(INGRESS_POLICIES, 'ingressPolicy', conf.ingressPolicy) ?? 'open';
  const adminChain = conf.iptablesAdminChainName || 'CNI-ADMIN';
  if (!/^[^\s!-][^\s]*$/.test(adminChain) || adminChain.length > CHAIN_NAME_MAX_LENGTH) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "iptablesAdminChainName": "${adminChain}": iptables has no chains of that name; expected ` +
        `up to ${CHAIN_NAME_MAX_LENGTH} characters without white space`,
    );
  }
  return { ...(backend ? { backend } : {}), policy, adminChain, zone: zoneOf(conf) };
}

/** Zone that DEL looks at, too, however bad the rest of the configuration is. */
export function zoneOf({ firewalldZone }: FirewallConf): string {
  return firewalldZone || 'trusted';
}

function oneOf<T extends string>(known: readonly T[], key: string, value: string | undefined): T | undefined {
  if (!value) return undefined;
  const found = known.find(one => one === value);
  if (found) return found;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot use "${key}": "${value}": expected one of ${known.map(one => `"${one}"`).join(', ')}`,
  );
}
