// Which options does the bridge plugin take, and which combinations are invalid?
import * as z from 'zod/mini';
import { findMtuProblem } from '../../src/attach/mac-and-mtu.ts';
import { findMasqProblem } from '../../src/attach/masquerade.ts';
import { validatorOf } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';

/** VLANs that a frame can carry; 0 means none, 4095 is reserved (IEEE 802.1Q). */
export const FIRST_VLAN = 1;
export const LAST_VLAN = 4094;

/** One VLAN, a range of VLANs, or both. */
const Trunk = z.looseObject({
  id: z.optional(z.int()),
  minID: z.optional(z.int()),
  maxID: z.optional(z.int()),
});

/** The bridge that networks share unless they name one; the reference's. */
export const DEFAULT_BRIDGE = 'cni0';

/** Options of a `"type": "bridge"` entry; {@link validateBridgeConf} refuses invalid values. */
export const BridgeConf = z.extend(PluginConfig, {
  /** Name of the bridge; created when missing. */
  bridge: z._default(z.string(), DEFAULT_BRIDGE),
  /** Put the gateway's address on the bridge and turn forwarding on. */
  isGateway: z._default(z.boolean(), false),
  /** Make that gateway the container's default route; implies `isGateway`. */
  isDefaultGateway: z._default(z.boolean(), false),
  /** Replace an address on the bridge that overlaps the gateway's, instead of failing. */
  forceAddress: z._default(z.boolean(), false),
  /** Masquerade containers' traffic to destinations outside their subnet. */
  ipMasq: z._default(z.boolean(), false),
  /** Packet filter used for masquerading: `nftables` or `iptables`. */
  ipMasqBackend: z.optional(z.string()),
  /** Source of masqueraded packets, at most one address per IP version; by default that of the outgoing interface. */
  ipMasqSource: z.optional(z.array(z.string())),
  /** MTU in bytes of a new bridge and of both veth ends; 0 keeps the kernel's default, `auto` is that of the uplink. */
  mtu: z._default(z.union([z.int(), z.literal('auto')], 'must be a number of bytes or "auto"'), 0),
  /** Let the port send frames back out the port they came in on. */
  hairpinMode: z._default(z.boolean(), false),
  /** Put the bridge into promiscuous mode. */
  promiscMode: z._default(z.boolean(), false),
  /** VLAN of the container's untagged frames, 1 to 4094; 0 for none. */
  vlan: z._default(z.int(), 0),
  /** VLANs that the container may use with tags: `{"id": 7}` or `{"minID": 100, "maxID": 200}`. */
  vlanTrunk: z.optional(z.array(Trunk)),
  /** Keep the port in the bridge's default VLAN as well. */
  preserveDefaultVlan: z._default(z.boolean(), false),
  /** Drop frames from the container with a source address other than its own hardware address. */
  macspoofchk: z._default(z.boolean(), false),
  /** Isolate the port from other isolated ports. */
  portIsolation: z._default(z.boolean(), false),
  /** Device of the host that becomes a port of the bridge. */
  uplinkInterface: z.optional(z.string()),
  /** Probe for IPv4 addresses before use, and fail if another host has one (RFC 5227); default: with `uplinkInterface`. */
  detectConflicts: z.optional(z.boolean()),
  /** Link-local groups 01-80-C2-00-00-00 to -0F that the bridge forwards, one bit each, without bits 0 to 2; 0 changes nothing. */
  groupFwdMask: z._default(z.int(), 0),
  /** Detect duplicate IPv6 addresses before use, which delays the container. */
  enabledad: z._default(z.boolean(), false),
  /** Leave the container's interface down; only without IPAM. */
  disableContainerInterface: z._default(z.boolean(), false),
  args: z.optional(z.looseObject({ cni: z.optional(z.looseObject({ mac: z.optional(z.string()) })) })),
  runtimeConfig: z.optional(z.looseObject({ mac: z.optional(z.string()) })),
});
export type BridgeConf = z.output<typeof BridgeConf>;

/** Name of the interface that carries a VLAN's gateway addresses, on a bridge with `vlan`. */
export function gatewayPortName({ bridge, vlan }: Pick<BridgeConf, 'bridge' | 'vlan'>): string {
  return `${bridge}.${vlan}`;
}

/** True when hosts that this node does not manage may have the container's addresses. */
export function sharesLink({ detectConflicts, uplinkInterface }: BridgeConf): boolean {
  return detectConflicts ?? Boolean(uplinkInterface);
}

/** True when the container's subnet, or the VLAN's, needs a gateway on the host. */
export function wantsGateway({ isGateway, isDefaultGateway }: BridgeConf): boolean {
  return isGateway || isDefaultGateway;
}

/** Refuses options that contradict each other. */
export const validateBridgeConf = validatorOf(
  'bridge',
  (conf: BridgeConf) => findProblem(conf) ?? findVlanProblem(conf),
);

const LOOPBACK = 'lo';

function findProblem(conf: BridgeConf): string | undefined {
  const { bridge, mtu } = conf;
  const problem = findIfnameProblem(bridge);
  if (problem) return `"bridge" is "${bridge}": ${problem}`;
  if (bridge === LOOPBACK) return `"bridge" is "${bridge}", which is the loopback device of every host`;
  const mtuProblem = findMtuProblem(mtu);
  if (mtuProblem) return mtuProblem;
  if (conf.hairpinMode && conf.promiscMode) return '"hairpinMode" and "promiscMode" exclude each other';
  if (conf.disableContainerInterface && conf.ipam?.type) {
    return '"disableContainerInterface" leaves no interface for the addresses of "ipam"; remove one of them';
  }
  return findMasqProblem(conf) ?? findUplinkProblem(conf);
}

/** linux/if_bridge.h, BR_GROUPFWD_RESTRICTED: spanning tree, pause frames and link aggregation never pass a bridge. */
const RESTRICTED_GROUPS = 7;

function findUplinkProblem({ bridge, uplinkInterface, groupFwdMask }: BridgeConf): string | undefined {
  if (groupFwdMask < 0 || groupFwdMask > 0xffff || groupFwdMask & RESTRICTED_GROUPS) {
    return `"groupFwdMask" is ${groupFwdMask}, expected 0 to 65535 without bits 0 to 2, which bridges must not forward`;
  }
  if (!uplinkInterface) return undefined;
  const problem = uplinkInterface === bridge ? 'it is the bridge itself' : findIfnameProblem(uplinkInterface);
  return problem && `"uplinkInterface" is "${uplinkInterface}": ${problem}`;
}

function findVlanProblem(conf: BridgeConf): string | undefined {
  const { vlan, vlanTrunk = [] } = conf;
  const isVlan = (id: number) => id >= FIRST_VLAN && id <= LAST_VLAN;
  const range = `${FIRST_VLAN} to ${LAST_VLAN}`;
  if (vlan !== 0 && !isVlan(vlan)) return `"vlan" is ${vlan}, expected ${range}, or 0 for none`;
  for (const trunk of vlanTrunk) {
    const { id, minID, maxID } = trunk;
    const wrong = [id, minID, maxID].find(one => one !== undefined && !isVlan(one));
    const text = JSON.stringify(trunk);
    if (wrong !== undefined) return `"vlanTrunk" holds ${text}, expected ${range}`;
    if ((minID === undefined) !== (maxID === undefined)) {
      return `"vlanTrunk" holds ${text}: "minID" and "maxID" go together`;
    }
    if (minID !== undefined && maxID !== undefined && minID > maxID) {
      return `"vlanTrunk" holds ${text}: "minID" is greater than "maxID"`;
    }
  }
  const name = gatewayPortName(conf);
  const problem = vlan !== 0 && wantsGateway(conf) ? findIfnameProblem(name) : undefined;
  return problem && `"vlan" ${vlan} needs an interface "${name}" for its gateway: ${problem}`;
}
