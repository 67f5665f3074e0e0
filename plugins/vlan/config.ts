// Which options does the vlan plugin take, and which values are invalid?
import * as z from 'zod/mini';
import { findMtuProblem } from '../../src/attach/mac-and-mtu.ts';
import { findMasterProblem } from '../../src/attach/upper.ts';
import { validatorOf } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { VLAN_PROTOCOLS } from '../../src/netlink/rtnl/link.ts';

/** IEEE 802.1Q: 0 tags a frame with its priority only, 4095 is reserved. */
const LAST_VLAN = 4094;
/** IEEE 802.1Q: a tag has three bits for the priority. */
const LAST_PRIORITY = 7;

/** A pair of a socket's priority and the priority in the tag. */
const Mapping = z.object({ from: z.int(), to: z.int() });

/** Options of a `"type": "vlan"` entry; {@link validateVlanConf} refuses invalid values. */
export const VlanConf = z.extend(PluginConfig, {
  /** Interface of the host that carries the VLAN. */
  master: z.optional(z.string()),
  /** VLAN, 0 to 4094; or two of them, the outer one first. */
  vlanId: z._default(z.union([z.int(), z.array(z.int())]), 0),
  /** Protocol of the tag, with two tags of the outer one: `802.1q` or `802.1ad`. */
  protocol: z._default(z.string(), '802.1q'),
  /** MTU in bytes, at most the master's; 0 for the master's. */
  mtu: z._default(z.int(), 0),
  /** Hardware address; the master's unless given. */
  mac: z.optional(z.string()),
  /** Priorities of packets, and those that their tags get: `[{"from": 0, "to": 5}]`. */
  egressQosMap: z.optional(z.array(Mapping)),
  /** Priorities in tags, and those that their packets get. */
  ingressQosMap: z.optional(z.array(Mapping)),
  /** Look for the master in the container instead of on the host. */
  linkInContainer: z._default(z.boolean(), false),
  /** Probe for IPv4 addresses before use, and fail if another host has one (RFC 5227). */
  detectConflicts: z._default(z.boolean(), true),
  args: z.optional(z.looseObject({ cni: z.optional(z.looseObject({ mac: z.optional(z.string()) })) })),
  runtimeConfig: z.optional(z.looseObject({ mac: z.optional(z.string()) })),
});
export type VlanConf = z.output<typeof VlanConf>;

/** Refuses what ADD cannot work with. */
export const validateVlanConf = validatorOf(
  'vlan',
  (conf: VlanConf) => findProblem(conf) ?? findQosProblem(conf),
);

function findProblem({ master, vlanId, protocol, mtu }: VlanConf): string | undefined {
  if (!master) return '"master" is missing; name the interface of the host that carries the VLAN';
  const ids = [vlanId].flat();
  const wrong = ids.find(id => id < 0 || id > LAST_VLAN);
  if (wrong !== undefined) return `"vlanId" holds ${wrong}, expected 0 to ${LAST_VLAN}`;
  if (ids.length < 1 || ids.length > 2) return `"vlanId" holds ${ids.length} VLANs, expected one or two`;
  if (!Object.hasOwn(VLAN_PROTOCOLS, protocol)) {
    return `"protocol" is "${protocol}", expected ${Object.keys(VLAN_PROTOCOLS).join(' or ')}`;
  }
  const wrongMtu = findMtuProblem(mtu, "or 0 for the master's");
  if (wrongMtu) return wrongMtu;
  return findMasterProblem(master);
}

function findQosProblem(conf: VlanConf): string | undefined {
  const isPriority = (value: number) => value >= 0 && value <= LAST_PRIORITY;
  const isAny = (value: number) => value >= 0 && value <= 0xffffffff;
  for (const [key, inTag, inPacket] of [
    ['egressQosMap', 'to', 'from'],
    ['ingressQosMap', 'from', 'to'],
  ] as const) {
    const wrong = conf[key]?.find(one => !isPriority(one[inTag]) || !isAny(one[inPacket]));
    if (wrong)
      return `"${key}" holds ${JSON.stringify(wrong)}, expected "${inTag}" from 0 to ${LAST_PRIORITY}`;
  }
  return undefined;
}

export function protocolOf({ protocol }: Pick<VlanConf, 'protocol'>): keyof typeof VLAN_PROTOCOLS {
  return protocol as keyof typeof VLAN_PROTOCOLS;
}
