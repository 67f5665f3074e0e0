// Which attachments to a network does this node hold anything of, and are they in use?
//
// Records get lost, and attachments of other runtimes are in their records, not in ours. So the owner of what is in the kernel
// and on disk is read from its notes, and then whether it is in use: its namespace exists, or an interface has the address. An
// attachment counts as leaked only if some evidence says that it is unused and none says that it is used.
import type { HeldAttachment } from '../chain/records/held-attachment.ts';
import { digestOf } from '../cni/attachment.ts';
import { findContainerIdProblem } from '../cni/env.ts';
import { type CniError, toCniError } from '../cni/errors.ts';
import type { FindAbout, NetworkPlugins } from '../cni/network-plugins.ts';
import type { AttachmentKey } from '../cni/plugin-config.ts';
import { thisProcess } from '../files/process-stat.ts';
import { findUse, type Use } from '../ipam/holders.ts';
import { isContainer, type Key, listRecentlyBegun } from '../journal/generation.ts';
import { Tables } from '../netlink/tables.ts';
import { type HeldLease, listBackups, listHeldLeases } from './disk.ts';
import { findRedirectTargets, listKernelTraces } from './kernel.ts';
import type { Trace, Witnesses } from './trace.ts';

/** Finds what the node holds of attachments to a network. */
export type Look = (list: NetworkPlugins, known: readonly AttachmentKey[]) => HeldAttachment[];

/** Where GC looks. */
interface Where {
  /** Where plugins write notes of what they begin. */
  readonly runDir: string;
  /** Says where plugins keep files. */
  readonly find: FindAbout;
}

/** Like {@link findTraced}, but if the kernel refuses, it reports that and finds nothing. */
export function lookOrTell(tell: (problem: CniError) => void, where: Where): Look {
  return (list, known) => {
    try {
      return findTraced(list, known, where);
    } catch (error) {
      tell(toCniError(error));
      return [];
    }
  };
}

/**
 * Everything that carries the name of an attachment to the network.
 * @param known names to match with digests
 * @throws NetlinkError when the kernel refuses
 */
function findTraced(
  list: NetworkPlugins,
  known: readonly AttachmentKey[],
  { runDir, find }: Where,
): HeldAttachment[] {
  const tables = new Tables();
  const found = listKernelTraces(tables, list.name);
  const use = findUse();
  const leases = listHeldLeases(list, find, use?.holders);
  const witnesses = witnessesOf(tables, use, leases);
  const traces = [
    ...found.map(({ owner, what, judge }) => ({ owner, what, ...judge(witnesses) })),
    ...leases.map(({ trace }) => trace),
    ...listBackups(list, find),
  ];
  const traced = group(traces, known, use && seesAllProcesses() ? undefined : BLINDNESS);
  return [...traced, ...findBegun(list.name, traced, runDir)];
}

/** Attachments that have only the note of an ADD so far, for example while a plugin waits for a DHCP server. */
function findBegun(network: string, traced: readonly HeldAttachment[], runDir: string): HeldAttachment[] {
  const isTraced = ({ containerId, ifname }: Key) =>
    traced.some(one => one.ifname === ifname && isContainer(containerId, one.containerId));
  return listRecentlyBegun(runDir, network)
    .filter(note => !isTraced(note))
    .map(({ containerId, ifname }) => {
      const traces = ['note of an ADD: it has created nothing yet'];
      return { containerId, ifname, isNamed: true, traces, inUse: 'its ADD has just started' };
    });
}

function witnessesOf(tables: Tables, use: Use | undefined, leases: readonly HeldLease[]): Witnesses {
  const lessees = new Map(leases.map(({ address, owner }) => [address, owner]));
  const led = findRedirectTargets(tables);
  return {
    farEnds: use?.farEnds ?? new Map(),
    isLedTo: index => led.has(index),
    lesseeOf: address => lessees.get(address),
    holderOf(address) {
      const holder = use?.holders.get(address)?.find(({ isHere }) => !isHere);
      return holder && `interface "${holder.ifname}" in namespace "${holder.netns}" has ${address}`;
    },
  };
}

const BLINDNESS = 'cannot see whether it is in use: this requires root, outside of any container';

/** linux/proc_ns.h, PROC_PID_INIT_INO. From another one, a namespace may look unused because its processes are not visible. */
function seesAllProcesses(): boolean {
  return thisProcess().pidns === `pid:[${0xef_ff_ff_fc}]`;
}

function group(
  traces: readonly Trace[],
  known: readonly AttachmentKey[],
  blindness: string | undefined,
): HeldAttachment[] {
  const ids = [
    ...known.map(({ containerID }) => containerID),
    ...traces.map(({ owner }) => owner.containerId),
  ];
  const byDigest = new Map(ids.map(id => [`~${digestOf(id)}`, id]));
  const groups = new Map<string, Trace[]>();
  for (const trace of traces) {
    const { containerId, ifname } = trace.owner;
    const key = `${byDigest.get(containerId) ?? containerId}/${ifname}`;
    groups.set(key, [...(groups.get(key) ?? []), trace]);
  }
  const sorted = [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
  return sorted.map(([key, own]) => {
    const [containerId = '', ifname = ''] = key.split('/');
    const isNamed = findContainerIdProblem(containerId) === undefined;
    const inUse = blindness ?? describeUse(own);
    return { containerId, ifname, isNamed, traces: own.map(({ what, why }) => `${what}: ${why}`), inUse };
  });
}

/** Why it is in use; without evidence, it might be. */
function describeUse(traces: readonly Trace[]): string | undefined {
  const used = traces.find(({ evidence }) => evidence === 'used');
  if (used) return `${used.what}: ${used.why}`;
  return traces.some(({ evidence }) => evidence === 'unused')
    ? undefined
    : 'nothing shows whether it is in use';
}
