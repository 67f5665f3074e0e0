// How does a port get its VLANs, and how is VLAN filtering turned on for a bridge?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import {
  addPortVlans,
  listBridgePorts,
  removePortVlans,
  setVlanFiltering,
} from '../../../src/netlink/rtnl/bridge-vlan.ts';
import type { Link } from '../../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { confirm } from '../../../src/plugin/confirm.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { type BridgeConf, FIRST_VLAN, LAST_VLAN } from '../config.ts';
import { renderVlans, type VlanPlan } from '../plan.ts';

/**
 * Makes a port a member of VLANs, and of no other unless the plan keeps the default one.
 * @throws CniError 2 when the kernel does not support it
 */
export function setPortVlans(host: NetlinkSocket, conf: BridgeConf, port: Link, plan: VlanPlan): void {
  try {
    if (plan.leavesDefault) removePortVlans(host, port.index, FIRST_VLAN, LAST_VLAN);
    addPortVlans(host, port.index, plan.vlans);
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.EOPNOTSUPP)) throw refuseVlans(conf, thrown);
    throw thrown;
  }
}

/** @throws Error naming the VLANs that a port should be in, and those it is in */
export function checkPortVlans(host: NetlinkSocket, bridge: Link, port: Link, plan: VlanPlan): void {
  const found = listBridgePorts(host, bridge.index).find(({ index }) => index === port.index)?.vlans ?? [];
  const wanted = renderVlans(plan.vlans);
  // A port that keeps the default VLAN may be in further VLANs that the bridge assigned.
  const present = plan.leavesDefault
    ? renderVlans(found)
    : renderVlans(found).filter(vlan => wanted.includes(vlan));
  confirm(`VLANs of "${port.name}"`, wanted, present);
}

/**
 * Rejects an existing bridge that does not filter VLANs and must not be switched. A bridge that this plugin made can be switched;
 * on one that others made this might cut off their traffic.
 * @throws CniError 2 when the kernel does not support it, 7 when the operator has to decide
 */
export function requireFiltering(conf: BridgeConf, bridge: Link, ours: boolean): void {
  const filtering = vlanFilteringOf(bridge);
  if (filtering === undefined) throw refuseVlans(conf);
  if (filtering === 1 || ours) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot use ${vlanKeys(conf)} on bridge "${bridge.name}": its VLAN filtering is off, and this plugin did not create it`,
    { details: `run: ip link set ${bridge.name} type bridge vlan_filtering 1` },
  );
}

/** Turns on VLAN filtering of a bridge if it is off. Registers its own undo steps. */
export function ensureFiltering(call: Call<BridgeConf>, bridge: Link): void {
  if (vlanFilteringOf(bridge) === 1) return;
  setVlanFiltering(call.host, bridge.index, true);
  call.onFailure(`turn VLAN filtering of "${bridge.name}" off`, () =>
    setVlanFiltering(call.host, bridge.index, false),
  );
}

/** 1 when the bridge filters VLANs, 0 when it does not, undefined when the kernel does not support it. */
export function vlanFilteringOf(bridge: Link): number | undefined {
  const data = bridge.attrs.linkinfo?.data;
  if (data === undefined || data instanceof Uint8Array || !('vlanFiltering' in data)) return undefined;
  // Every kernel has the switch, but only those that can turn it on report the VLAN protocol.
  return data.vlanProtocol === undefined ? undefined : data.vlanFiltering;
}

/** The kernel does not support VLANs on bridges (SPEC: code 2 names key and value). */
export function refuseVlans(conf: BridgeConf, cause?: unknown): CniError {
  return new CniError(
    ErrorCode.unsupportedField,
    `Cannot use ${vlanKeys(conf)}: this kernel is built without VLAN filtering on bridges`,
    { details: 'it needs CONFIG_BRIDGE_VLAN_FILTERING', cause },
  );
}

function vlanKeys({ vlan, vlanTrunk }: BridgeConf): string {
  return [
    ...(vlan ? [`"vlan": ${vlan}`] : []),
    ...(vlanTrunk ? [`"vlanTrunk": ${JSON.stringify(vlanTrunk)}`] : []),
  ].join(' and ');
}
