// Which options does the ipvlan plugin take, and which values are invalid?
import * as z from 'zod/mini';
import { findMtuProblem } from '../../src/attach/mac-and-mtu.ts';
import { findMasterProblem } from '../../src/attach/upper.ts';
import { validatorOf } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { IPVLAN_FLAGS, IPVLAN_MODES } from '../../src/netlink/rtnl/link.ts';

/** Options of a `"type": "ipvlan"` entry; {@link validateIpvlanConf} refuses invalid values. */
export const IpvlanConf = z.extend(PluginConfig, {
  /** Interface of the host that the container's is made on; by default that of the plugin before, else of the default route. */
  master: z.optional(z.string()),
  /** Layer on which packets are switched: `l2`, `l3`, or `l3s`, which passes them through the host's packet filter. */
  mode: z._default(z.string(), 'l2'),
  /** How containers on one master reach each other: `bridge`, `private` or `vepa`. */
  flags: z._default(z.string(), 'bridge'),
  /** MTU in bytes, at most the master's; 0 for the master's. */
  mtu: z._default(z.int(), 0),
  /** Look for the master in the container instead of on the host. */
  linkInContainer: z._default(z.boolean(), false),
  mac: z.optional(z.string()),
  args: z.optional(z.looseObject({ cni: z.optional(z.looseObject({ mac: z.optional(z.string()) })) })),
  runtimeConfig: z.optional(z.looseObject({ mac: z.optional(z.string()) })),
});
export type IpvlanConf = z.output<typeof IpvlanConf>;

/** Refuses what ADD cannot work with. */
export const validateIpvlanConf = validatorOf('ipvlan', findProblem);

function findProblem({ master, mode, flags, mtu, mac, args, runtimeConfig }: IpvlanConf): string | undefined {
  if (mode !== '' && !Object.hasOwn(IPVLAN_MODES, mode)) {
    return `"mode" is "${mode}", expected ${Object.keys(IPVLAN_MODES).join(', ')}`;
  }
  if (!Object.hasOwn(IPVLAN_FLAGS, flags)) {
    return `"flags" is "${flags}", expected ${Object.keys(IPVLAN_FLAGS).join(', ')}`;
  }
  const wrongMtu = findMtuProblem(mtu, "or 0 for the master's");
  if (wrongMtu) return wrongMtu;
  const wanted = runtimeConfig?.mac || args?.cni?.mac || mac;
  if (wanted) {
    return `hardware address "${wanted}" is requested, but all ipvlan interfaces have their master's; use plugin macvlan`;
  }
  return findMasterProblem(master);
}

/** The mode of a valid configuration; an empty one is the default, as in the reference. */
export function modeOf({ mode }: Pick<IpvlanConf, 'mode'>): keyof typeof IPVLAN_MODES {
  return mode === '' ? 'l2' : (mode as keyof typeof IPVLAN_MODES);
}

export function flagsOf({ flags }: Pick<IpvlanConf, 'flags'>): keyof typeof IPVLAN_FLAGS {
  return flags as keyof typeof IPVLAN_FLAGS;
}
