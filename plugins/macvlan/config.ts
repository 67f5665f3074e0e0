// Which options does the macvlan plugin take, and which values are invalid?
import * as z from 'zod/mini';
import { findMtuProblem } from '../../src/attach/mac-and-mtu.ts';
import { findMasterProblem } from '../../src/attach/upper.ts';
import { validatorOf } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { MACVLAN_MODES } from '../../src/netlink/rtnl/link.ts';

/** Options of a `"type": "macvlan"` entry; {@link validateMacvlanConf} refuses invalid values. */
export const MacvlanConf = z.extend(PluginConfig, {
  /** Interface of the host that the container's is made on; by default that of the plugin before, else of the default route. */
  master: z.optional(z.string()),
  /** How containers on one master reach each other: `bridge`, `private`, `vepa` or `passthru`. */
  mode: z._default(z.string(), 'bridge'),
  /** MTU in bytes, at most the master's; 0 for the master's. */
  mtu: z._default(z.int(), 0),
  /** Hardware address; derived from the attachment unless given. */
  mac: z.optional(z.string()),
  /** Broadcast and multicast packets that the master may queue for its interfaces; 0 keeps the kernel's default of 1000. */
  bcqueuelen: z._default(z.int(), 0),
  /** Look for the master in the container instead of on the host. */
  linkInContainer: z._default(z.boolean(), false),
  /** Let the host itself reach the container, by a macvlan of its own on the same master. */
  hostAccess: z._default(z.boolean(), false),
  /** Probe for IPv4 addresses before use, and fail if another host has one (RFC 5227). */
  detectConflicts: z._default(z.boolean(), true),
  args: z.optional(z.looseObject({ cni: z.optional(z.looseObject({ mac: z.optional(z.string()) })) })),
  runtimeConfig: z.optional(z.looseObject({ mac: z.optional(z.string()) })),
});
export type MacvlanConf = z.output<typeof MacvlanConf>;

/** Refuses what ADD cannot work with. */
export const validateMacvlanConf = validatorOf('macvlan', findProblem);

function findProblem(conf: MacvlanConf): string | undefined {
  const { master, mode, mtu, bcqueuelen } = conf;
  if (mode !== '' && !Object.hasOwn(MACVLAN_MODES, mode)) {
    return `"mode" is "${mode}", expected ${Object.keys(MACVLAN_MODES).join(', ')}`;
  }
  const wrongMtu = findMtuProblem(mtu, "or 0 for the master's");
  if (wrongMtu) return wrongMtu;
  if (bcqueuelen < 0 || bcqueuelen > 0xffffffff) {
    return `"bcqueuelen" is ${bcqueuelen}, expected 1 to 4294967295, or 0 for the kernel's default`;
  }
  return findMasterProblem(master) ?? (conf.hostAccess ? findAccessProblem(conf) : undefined);
}

function findAccessProblem(conf: MacvlanConf): string | undefined {
  if (modeOf(conf) !== 'bridge') {
    return `"hostAccess" has no effect with "mode" "${conf.mode}": only in mode "bridge" do interfaces on one master reach each other`;
  }
  if (conf.linkInContainer) return '"hostAccess" has no effect with "linkInContainer"; remove one of them';
  if (!conf.ipam?.type) return '"hostAccess" needs the addresses of "ipam"';
  return undefined;
}

/** The mode of a valid configuration; an empty one is the default, as in the reference. */
export function modeOf({ mode }: Pick<MacvlanConf, 'mode'>): keyof typeof MACVLAN_MODES {
  return mode === '' ? 'bridge' : (mode as keyof typeof MACVLAN_MODES);
}
