// Which attachments to a network does this node hold anything of, and does anybody use it?
//
// Records get lost, and what other runtimes attach is on their records, not on ours. So what is in the kernel and on disk
// is asked whose it is, and whether somebody is behind it: a namespace that exists, an interface that has the address.
// Only where something says that nobody is, and nothing that somebody is, an attachment counts as left over.
import type { Traced } from '../chain/traced.ts';
import { digestOf } from '../cni/attachment.ts';
import { findContainerIdProblem } from '../cni/env.ts';
import { type CniError, toCniError } from '../cni/errors.ts';
import type { AttachmentKey } from '../cni/plugin-config.ts';
import { thisProcess } from '../files/process-id.ts';
import { findUse, type Use } from '../ipam/holders.ts';
import { type HeldLease, type ListWithFiles, listBackups, listHeldLeases } from './disk.ts';
import { findRedirectTargets, listKernelTraces } from './kernel.ts';
import type { Trace, Witnesses } from './trace.ts';

/** Like {@link findTraced}, but whoever may not ask the kernel is told so, and finds nothing. */
export function lookOrTell(tell: (problem: CniError) => void): typeof findTraced {
  return (list, known) => {
    try {
      return findTraced(list, known);
    } catch (error) {
      tell(toCniError(error));
      return [];
    }
  };
}

/**
 * Everything that carries the name of an attachment to the network.
 * @param known names that may stand behind digests
 * @throws NetlinkError when the kernel does not let itself be asked
 */
function findTraced(list: ListWithFiles, known: readonly AttachmentKey[]): Traced[] {
  const found = listKernelTraces(list.name);
  const use = findUse();
  const leases = listHeldLeases(list, use?.holders);
  const witnesses = witnessesOf(use, leases);
  const traces = [
    ...found.map(({ owner, what, judge }) => ({ owner, what, ...judge(witnesses) })),
    ...leases.map(({ trace }) => trace),
    ...listBackups(list),
  ];
  return group(traces, known, use && seesAllProcesses() ? undefined : BLINDNESS);
}

function witnessesOf(use: Use | undefined, leases: readonly HeldLease[]): Witnesses {
  const lessees = new Map(leases.map(({ address, owner }) => [address, owner]));
  const led = findRedirectTargets();
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

const BLINDNESS =
  'whether anybody uses it cannot be seen from here: that takes root, outside of any container';

/** linux/proc_ns.h, PROC_PID_INIT_INO: a namespace whose processes are not seen may look as if it had none. */
function seesAllProcesses(): boolean {
  return thisProcess().pidns === `pid:[${0xef_ff_ff_fc}]`;
}

function group(
  traces: readonly Trace[],
  known: readonly AttachmentKey[],
  blindness: string | undefined,
): Traced[] {
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

/** Who is behind it; and where nothing tells, somebody might be. */
function describeUse(traces: readonly Trace[]): string | undefined {
  const used = traces.find(({ evidence }) => evidence === 'used');
  if (used) return `${used.what}: ${used.why}`;
  return traces.some(({ evidence }) => evidence === 'unused')
    ? undefined
    : 'nothing tells whether anybody uses it';
}
