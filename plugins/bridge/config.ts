// Which options does the bridge link take, and which combinations make no sense?
import * as z from 'zod/mini';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/plugin-config.ts';
import { findIfnameProblem } from '../../src/net/ifname.ts';

/** Options of a `"type": "bridge"` entry. The README's table repeats these descriptions. */
export const BridgeConf = z.extend(PluginConfig, {
  /** Name of the bridge; created when missing. */
  bridge: z._default(z.string(), 'cni0'),
  /** Put the gateway's address on the bridge and turn forwarding on. */
  isGateway: z._default(z.boolean(), false),
  /** Make that gateway the container's default route; implies `isGateway`. */
  isDefaultGateway: z._default(z.boolean(), false),
  /** Replace an address on the bridge that overlaps the gateway's, instead of failing. */
  forceAddress: z._default(z.boolean(), false),
  /** Masquerade what containers send beyond their own subnet. */
  ipMasq: z._default(z.boolean(), false),
  /** Packet filter used for masquerading. */
  ipMasqBackend: z.optional(z.enum(['nftables', 'iptables'])),
  /** MTU in bytes of a new bridge and of both veth ends; 0 leaves the kernel's default. */
  mtu: z._default(z.int(), 0),
  /** Let the port send frames back to where they came from. */
  hairpinMode: z._default(z.boolean(), false),
  /** Switch the bridge to promiscuous mode. */
  promiscMode: z._default(z.boolean(), false),
  /** Keep the port from talking to other isolated ports. */
  portIsolation: z._default(z.boolean(), false),
  /** Detect duplicate IPv6 addresses before use, which delays the container. */
  enabledad: z._default(z.boolean(), false),
  /** Leave the container's interface down; only without IPAM. */
  disableContainerInterface: z._default(z.boolean(), false),
  vlan: z._default(z.int().check(z.minimum(0), z.maximum(4094)), 0),
  vlanTrunk: z.optional(z.array(z.looseObject({}))),
  macspoofchk: z._default(z.boolean(), false),
  args: z.optional(z.looseObject({ cni: z.optional(z.looseObject({ mac: z.optional(z.string()) })) })),
  runtimeConfig: z.optional(z.looseObject({ mac: z.optional(z.string()) })),
});
export type BridgeConf = z.output<typeof BridgeConf>;

/**
 * Refuses what contradicts itself or is not built, before anything is touched.
 * @throws CniError 7, or 2 for keys that this version does not support
 */
export function validateBridgeConf(conf: BridgeConf): void {
  const refuse = (what: string) => {
    throw new CniError(ErrorCode.invalidConfig, `Cannot use bridge configuration: ${what}`);
  };
  const problem = findIfnameProblem(conf.bridge);
  if (problem) refuse(`"bridge" is "${conf.bridge}": ${problem}`);
  if (conf.mtu < 0 || conf.mtu > 65535)
    refuse(`"mtu" is ${conf.mtu}, expected 68 to 65535, or 0 for the default`);
  if (conf.hairpinMode && conf.promiscMode) refuse('"hairpinMode" and "promiscMode" exclude each other');
  if (conf.disableContainerInterface && conf.ipam?.type) {
    refuse('"disableContainerInterface" leaves no interface for the addresses of "ipam"; remove one of them');
  }
  const unsupported = {
    vlan: conf.vlan || undefined,
    vlanTrunk: conf.vlanTrunk?.length ? conf.vlanTrunk : undefined,
    macspoofchk: conf.macspoofchk || undefined,
    ipMasqBackend: conf.ipMasqBackend === 'iptables' ? conf.ipMasqBackend : undefined,
  };
  for (const [key, value] of Object.entries(unsupported)) {
    if (value === undefined) continue;
    throw new CniError(
      ErrorCode.unsupportedField,
      `Cannot use bridge configuration: "${key}": ${JSON.stringify(value)} is not supported`,
    );
  }
}
