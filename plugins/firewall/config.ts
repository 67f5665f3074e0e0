// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { invalidConfig } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';

/**
 * Which peers may open connections to a container: all; all except those in other closed networks; or, in addition, none of its
 * own network either.
 */
export const INGRESS_POLICIES = ['open', 'same-bridge', 'isolated'] as const;
export type IngressPolicy = (typeof INGRESS_POLICIES)[number];

/** The values of `backend`. In any case nf_tables has the rules and records which attachment has which addresses. */
export const BACKENDS = ['nftables', 'iptables', 'firewalld'] as const;
export type Backend = (typeof BACKENDS)[number];
/** Packet filters that have to be informed in addition to nf_tables. */
export type Other = Exclude<Backend, 'nftables'>;

// The chains of iptables are the reference's.

/** The operator's chain, unless the configuration names another. */
export const ADMIN_CHAIN = 'CNI-ADMIN';
/** The chain that accepts packets; FORWARD jumps to it. */
export const CNI_FORWARD = 'CNI-FORWARD';
/** Chains for pods that are not open. */
export const STAGES = ['CNI-ISOLATION-STAGE-1', 'CNI-ISOLATION-STAGE-2'] as const;

/**
 * The request as firewall sees it. Its values are validated by ADD and CHECK, not by DEL, so an attachment can still be deleted
 * after its configuration has become invalid.
 */
export const FirewallConf = z.extend(PluginConfig, {
  /** Packet filter to program: `nftables` alone, or `iptables` or `firewalld` in addition. */
  backend: z.optional(z.string()),
  /** Which peers may connect to the pod: `open`, `same-bridge` or `isolated`. */
  ingressPolicy: z.optional(z.string()),
  /** With iptables: chain for the operator's own rules, evaluated before those of this plugin. */
  iptablesAdminChainName: z._default(z.string(), ADMIN_CHAIN),
  /** With firewalld: zone to which the pod's addresses are added. */
  firewalldZone: z._default(z.string(), 'trusted'),
});
export type FirewallConf = z.output<typeof FirewallConf>;

/** The validated configuration. */
export interface FirewallOptions {
  /** Absent when the choice is left to us. */
  readonly backend?: Backend;
  readonly policy: IngressPolicy;
  readonly adminChain: string;
  readonly zone: string;
}

/** iptables: XT_EXTENSION_MAXNAMELEN, less the terminating zero. */
const CHAIN_NAME_MAX_LENGTH = 28;

/** Verdicts, for which a jump to such a chain would be mistaken, and chains that have another purpose. */
const TAKEN_NAMES: readonly string[] = [
  ...['ACCEPT', 'DROP', 'RETURN', 'QUEUE', 'REJECT', 'INPUT', 'FORWARD', 'OUTPUT'],
  ...[CNI_FORWARD, ...STAGES],
];

/**
 * Validates the options; called before anything is changed.
 * @throws CniError 7
 */
export function parseFirewallConf(conf: FirewallConf): FirewallOptions {
  const backend = oneOf(BACKENDS, 'backend', conf.backend);
  const policy = oneOf(INGRESS_POLICIES, 'ingressPolicy', conf.ingressPolicy) ?? 'open';
  const adminChain = conf.iptablesAdminChainName || ADMIN_CHAIN;
  const isName = /^[^\s"!-][^\s"]*$/.test(adminChain) && adminChain.length <= CHAIN_NAME_MAX_LENGTH;
  if (!isName || TAKEN_NAMES.includes(adminChain)) {
    throw invalidConfig(
      `Cannot use "iptablesAdminChainName": "${adminChain}": it cannot be a chain of rules; expected ` +
        `up to ${CHAIN_NAME_MAX_LENGTH} characters without white space or quotes, and no verdict or chain of iptables`,
    );
  }
  return { ...(backend ? { backend } : {}), policy, adminChain, zone: zoneOf(conf) };
}

/** The zone, which DEL needs even if the rest of the configuration is invalid. */
export function zoneOf({ firewalldZone }: FirewallConf): string {
  return firewalldZone || 'trusted';
}

function oneOf<T extends string>(known: readonly T[], key: string, value: string | undefined): T | undefined {
  if (!value) return undefined;
  const found = known.find(one => one === value);
  if (found) return found;
  throw invalidConfig(
    `Cannot use "${key}": "${value}": expected one of ${known.map(one => `"${one}"`).join(', ')}`,
  );
}
