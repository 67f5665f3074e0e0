// Which options does the ptp plugin take, and which values are invalid?
import * as z from 'zod/mini';
import { findMtuProblem } from '../../src/attach/mac-and-mtu.ts';
import { findMasqProblem } from '../../src/attach/masquerade.ts';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';

/** Options of a `"type": "ptp"` entry; {@link validatePtpConf} refuses invalid values. */
export const PtpConf = z.extend(PluginConfig, {
  /** Masquerade the container's traffic to destinations outside its subnet. */
  ipMasq: z._default(z.boolean(), false),
  /** Packet filter used for masquerading: `nftables` or `iptables`. */
  ipMasqBackend: z.optional(z.string()),
  /** Source of masqueraded packets, at most one address per IP version; by default that of the outgoing interface. */
  ipMasqSource: z.optional(z.array(z.string())),
  /** MTU in bytes of both veth ends; 0 keeps the kernel's default, `auto` is that of the uplink. */
  mtu: z._default(z.union([z.int(), z.literal('auto')], 'must be a number of bytes or "auto"'), 0),
});
export type PtpConf = z.output<typeof PtpConf>;

/**
 * Validates the options; called before anything is changed.
 * @returns the type of the IPAM plugin
 * @throws CniError 7
 */
export function validatePtpConf(conf: PtpConf): string {
  const problem = findMtuProblem(conf.mtu) ?? findMasqProblem(conf);
  if (problem) throw invalid(problem);
  if (conf.ipam?.type) return conf.ipam.type;
  throw invalid('"ipam.type" is missing; the plugin needs addresses to route');
}

function invalid(what: string): CniError {
  return invalidConfig(`Cannot use ptp configuration: ${what}`);
}
