// How are attributes and sysctls of the container read and set?
import { existsSync } from 'node:fs';
import { describeError } from '../../src/cni/errors.ts';
import {
  findLink,
  getLink,
  type Link,
  type LinkChange,
  setLinkRequest,
} from '../../src/netlink/rtnl/link.ts';
import { IFF_ALLMULTI, IFF_PROMISC } from '../../src/netlink/rtnl/link-attrs.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import { findSysctl, writeSysctl } from '../../src/sys/sysctl.ts';
import type { Backup } from './backup.ts';
import { type DeviceTuning, findPath, type TuningPlan, type TuningState } from './plan.ts';
import type { Sysctl } from './sysctl-key.ts';

/** What tuning works on: a socket in the container's namespace, and the namespace itself for sysctls. */
export interface Target {
  readonly socket: NetlinkSocket;
  readonly netns: Netns;
  readonly ifname: string;
}

/**
 * The current values of everything that the plan names.
 * @throws NetlinkError when attributes are to be set and the interface does not exist
 */
export function readState({ socket, netns, ifname }: Target, plan: TuningPlan): TuningState {
  // A main plugin without a kernel device leaves no interface, but sysctls of the namespace can still be set.
  const found = hasAttributes(plan.link) ? getLink(socket, ifname) : undefined;
  const state = { index: found?.index, link: found ? readDevice(found, plan.link) : {} };
  const paths = plan.sysctls.flatMap(sysctl => sysctl.paths);
  if (paths.length === 0) return { ...state, sysctls: new Map() };
  const known = inNetns(netns, () =>
    paths.filter(path => existsSync(`/proc/sys/${path}`)).map(path => [path, findSysctl(path)] as const),
  );
  return { ...state, sysctls: new Map(known) };
}

/** Sets the sysctls in their order. Same as: `sysctl -w <key>=<value>` in the container */
export function applySysctls({ netns }: Target, sysctls: readonly Sysctl[], state: TuningState): void {
  if (sysctls.length === 0) return;
  inNetns(netns, () => {
    for (const sysctl of sysctls) writeSysctl(getPath(sysctl, state), sysctl.value);
  });
}

/**
 * Sets the attributes, with one request each so that an error names the attribute, all sent at once.
 * Same as: `ip link set dev <ifname> address … promisc … mtu … allmulticast … txqueuelen …`
 */
export function applyDevice({ socket }: Target, link: DeviceTuning, { index }: TuningState): void {
  if (index === undefined) return;
  socket.requestAll(changesOf(link).map(change => setLinkRequest(index, change)));
}

/** The backup of a state: the current values of what a plan is about to change. */
export function backupOf(plan: TuningPlan, state: TuningState): Backup {
  const sysctl = plan.sysctls.flatMap(one => {
    const path = getPath(one, state);
    const value = state.sysctls.get(path);
    return value === undefined ? [] : [[path, value] as const];
  });
  return { ...state.link, ...(sysctl.length ? { sysctl: Object.fromEntries(sysctl) } : {}) };
}

/**
 * Restores what a backup holds, as far as the interface still exists; every value is attempted.
 * @returns what could not be restored, human-readable
 */
export function restore({ socket, netns, ifname }: Target, backup: Backup): string[] {
  const { sysctl = {}, mtu, mac, promisc, allmulti, txQLen } = backup;
  const link = findLink(socket, ifname);
  const changes = link ? changesOf({ mtu, mac, promisc, allmulti, txQLen }) : [];
  const outcomes = socket.attemptAll(changes.map(change => setLinkRequest(link?.index ?? 0, change)));
  const problems = outcomes.flatMap(outcome => (outcome instanceof Error ? [outcome.message] : []));
  const entries = Object.entries(sysctl).reverse();
  if (entries.length === 0) return problems;
  return inNetns(netns, () => [
    ...problems,
    ...entries.flatMap(([path, value]) => attempt(() => restoreSysctl(path, value))),
  ]);
}

/** {@link DeviceTuning}, from a plan or from a backup. */
type Attributes = { readonly [K in keyof DeviceTuning]?: DeviceTuning[K] | undefined };

function hasAttributes(link: DeviceTuning): boolean {
  return Object.keys(link).length > 0;
}

/** Only the attributes that the plan names. A bridge or a packet capture raises a counter, not the flag that is read here. */
function readDevice(link: Link, wanted: DeviceTuning): DeviceTuning {
  const all: Required<DeviceTuning> = {
    mac: link.mac ?? '',
    promisc: (link.flags & IFF_PROMISC) !== 0,
    mtu: link.mtu,
    allmulti: (link.flags & IFF_ALLMULTI) !== 0,
    txQLen: link.attrs.txqlen ?? 0,
  };
  return Object.fromEntries(Object.entries(all).filter(([name]) => name in wanted));
}

function changesOf({ mac, promisc, mtu, allmulti, txQLen }: Attributes): LinkChange[] {
  const changes: LinkChange[] = [{ mac }, { promisc }, { mtu }, { allmulti }, { txqlen: txQLen }];
  return changes.filter(change => Object.values(change).some(value => value !== undefined));
}

function getPath(sysctl: Sysctl, state: TuningState): string {
  const path = findPath(sysctl, state);
  if (path !== undefined) return path;
  throw new Error(`Cannot set sysctl "${sysctl.key}": this kernel has no "/proc/sys/${sysctl.paths[0]}"`);
}

function restoreSysctl(path: string, value: string): void {
  try {
    writeSysctl(path, value);
  } catch (thrown) {
    // A parameter that disappeared with its interface needs no restoring.
    const { code } = ((thrown as Error).cause ?? {}) as NodeJS.ErrnoException;
    if (code !== 'ENOENT') throw thrown;
  }
}

function attempt(step: () => void): string[] {
  try {
    step();
    return [];
  } catch (thrown) {
    return [describeError(thrown)];
  }
}
