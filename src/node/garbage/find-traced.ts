// Which attachments to a network does this node hold anything of, and are they in use?
//
// Records get lost, and attachments of other runtimes are in their records, not in ours. So the owner of what is in the kernel
// and on disk is read from its notes, and then whether it is in use: its namespace exists, or an interface has the address. An
// attachment counts as leaked only if some evidence says that it is unused and none says that it is used.
import { join } from 'node:path';
import { listRecentlyBegun } from '../../attachments/generation.ts';
import type { HeldAttachment } from '../../chain/run/runtime.ts';
import {
  type AttachmentId,
  digestOf,
  findContainerIdProblem,
  findOwner,
  isSameContainer,
} from '../../cni/attachment.ts';
import { type CniError, toCniError } from '../../cni/errors.ts';
import { isObject, tryParse } from '../../cni/json.ts';
import { backupDirsOf, type FindAbout, leaseDirsOf, type NetworkPlugins } from '../../cni/plugin-about.ts';
import type { AttachmentKey } from '../../cni/schemas.ts';
import { thisProcess } from '../../files/process-stat.ts';
import { namesIn, tryRead } from '../../files/read-file.ts';
import { findUse, type Holder, type Use } from '../../ipam/holders.ts';
import { tryListLeases } from '../../ipam/lease-files.ts';
import { inspectLease } from '../../ipam/lease-use.ts';
import { renderIp } from '../../net/ip.ts';
import type { NotedElement } from '../../netlink/nft/element.ts';
import { type FieldValue, renderFields } from '../../netlink/nft/table.ts';
import { listIngressFilters } from '../../netlink/rtnl/filter.ts';
import type { Link } from '../../netlink/rtnl/link.ts';
import { NETLINK_ROUTE } from '../../netlink/socket.ts';
import { Tables } from '../../netlink/tables.ts';

/** Finds what the node holds of attachments to a network. */
export type Look = (list: NetworkPlugins, known: readonly AttachmentKey[]) => HeldAttachment[];

interface Where {
  /** Where plugins write notes of what they begin. */
  readonly runDir: string;
  /** Says where plugins keep files. */
  readonly find: FindAbout;
  /** What was read of the kernel already. */
  readonly tables?: Tables;
  /** Default {@link findUse}. Called after the kernel's tables were read: what uses them may be made after that. */
  readonly findUse?: typeof findUse;
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
export function findTraced(
  list: NetworkPlugins,
  known: readonly AttachmentKey[],
  { runDir, find, tables = new Tables(), findUse: look = findUse }: Where,
): HeldAttachment[] {
  // Read before what uses them, which may be made later than they are.
  const { links, ownElements } = tables;
  const use = look();
  const leases = listHeldLeases(list, find, use?.holders);
  const traces = [
    ...listKernelTraces({ links, ownElements }, list.name, witnessesOf(tables, use, leases)),
    ...leases.map(({ trace }) => trace),
    ...listBackups(list, find),
  ];
  const traced = group(traces, known, use && seesAllProcesses() ? undefined : BLINDNESS);
  return [...traced, ...findBegun(list.name, traced, runDir)];
}

/** Attachments that have only the note of an ADD so far, for example while a plugin waits for a DHCP server. */
function findBegun(network: string, traced: readonly HeldAttachment[], runDir: string): HeldAttachment[] {
  return listRecentlyBegun(runDir, network)
    .filter(note => !traced.some(one => isSame(note, one)))
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

/** Why attachments count as in use where that cannot be seen. */
export const BLINDNESS = 'cannot see whether it is in use: this requires root, outside of any container';

/** linux/proc_ns.h, PROC_PID_INIT_INO. From another one, a namespace may look unused because its processes are not visible. */
function seesAllProcesses(): boolean {
  return thisProcess().pidns.startsWith(`pid:[${0xef_ff_ff_fc}]`);
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

interface HeldLease {
  readonly address: string;
  readonly owner: AttachmentId;
  readonly trace: Trace;
}

/** Leases that name an attachment. Leases in the old format, which name only a container, are left to the plugin. */
function listHeldLeases(
  list: NetworkPlugins,
  find: FindAbout,
  holders: ReadonlyMap<string, readonly Holder[]> | undefined,
): HeldLease[] {
  const witnesses = { holders, findRecord: () => undefined };
  return leaseDirsOf(list, find).flatMap(dir =>
    tryListLeases(dir).flatMap(address => {
      const lease = inspectLease(dir, address, witnesses);
      const { containerId, ifname } = lease?.owner ?? {};
      if (!lease || !containerId || ifname === undefined) return [];
      const owner = { network: list.name, containerId, ifname };
      const evidence = lease.state === 'unused' ? 'unused' : 'used';
      const what = `lease of ${address} in "${dir}"`;
      const why = lease.state === 'new' ? 'it was written less than a minute ago' : (lease.evidence[0] ?? '');
      return [{ address, owner, trace: { owner, what, evidence, why } }];
    }),
  );
}

/** Backups that name the network; the file name says which interface they belong to. */
function listBackups(list: NetworkPlugins, find: FindAbout): Trace[] {
  return backupDirsOf(list, find).flatMap(dir =>
    namesIn(dir).flatMap(name => {
      const [, containerId, ifname] = /^(.+)_(.+)\.json$/.exec(name) ?? [];
      if (!containerId || !ifname) return [];
      const backup = tryParse(tryRead(join(dir, name)) ?? '');
      if (!isObject(backup) || backup.network !== list.name) return [];
      const owner = { network: list.name, containerId, ifname };
      return [{ owner, what: `backup "${join(dir, name)}"`, ...SILENT }];
    }),
  );
}

/** Devices whose alias, and elements whose comment, name an attachment to the network. */
export function listKernelTraces(
  { links, ownElements }: Pick<Tables, 'links' | 'ownElements'>,
  network: string,
  witnesses: Witnesses,
): Trace[] {
  const devices = links.flatMap((link): Trace[] => {
    const owner = findOwner(link.attrs.alias);
    if (owner?.network !== network) return [];
    return [{ owner, what: `device "${link.name}" of kind "${link.kind}"`, ...judgeDevice(link, witnesses) }];
  });
  const elements = ownElements.flatMap((element): Trace[] => {
    const owner = findOwner(element.comment);
    if (owner?.network !== network) return [];
    const { table, set, key } = element;
    const what = `element ${renderFields(key)} of "${set}" in table ${table.family} ${table.name}`;
    return [{ owner, what, ...judgeElement(element, owner, witnesses) }];
  });
  return [...devices, ...elements];
}

/** Indexes of devices to which others redirect all incoming packets. */
function findRedirectTargets(tables: Tables): ReadonlySet<number> {
  const hooks = tables.qdiscs.filter(({ kind }) => kind === 'ingress' || kind === 'clsact');
  const filters = tables.ask(NETLINK_ROUTE, socket =>
    hooks.flatMap(({ index }) => listIngressFilters(socket, index)),
  );
  return new Set(filters.flatMap(filter => filter.redirectAllTo ?? []));
}

function judgeDevice({ index, kind }: Link, { farEnds, isLedTo }: Witnesses): Judgement {
  if (kind === 'ifb')
    return isLedTo(index) ? used('packets are redirected to it') : unused('no packets are redirected to it');
  const path = farEnds.get(index);
  if (path !== undefined) return used(`its peer is in namespace "${path}"`);
  return unused('its peer is in no namespace that has a process or a name');
}

/** Judges an element by the addresses in its key: they are the container's, or the host's, which prove nothing. */
function judgeElement({ key }: NotedElement, owner: AttachmentId, witnesses: Witnesses): Judgement {
  const found = key.filter(isAddress).map((ip): Judgement => {
    const address = renderIp(ip);
    const lessee = witnesses.lesseeOf(address);
    if (lessee && !isSame(lessee, owner))
      return unused(`${address} is now leased to container "${lessee.containerId}"`);
    const holder = witnesses.holderOf(address);
    return holder === undefined ? unused(`no interface has ${address}`) : used(holder);
  });
  return found.find(({ evidence }) => evidence === 'used') ?? found[0] ?? SILENT;
}

const SILENT: Judgement = { evidence: 'silent', why: 'it does not show whether the attachment exists' };

function used(why: string): Judgement {
  return { evidence: 'used', why };
}

function unused(why: string): Judgement {
  return { evidence: 'unused', why };
}

function isSame(a: Interface, b: Interface): boolean {
  return isSameContainer(a.containerId, b.containerId) && a.ifname === b.ifname;
}

/** A container's interface on the network. */
type Interface = Pick<AttachmentId, 'containerId' | 'ifname'>;

function isAddress(value: FieldValue): value is Exclude<FieldValue, number | string> {
  return typeof value === 'object';
}

interface Judgement {
  /** `used`: something that exists needs it. `unused`: what needed it is gone. `silent`: it proves neither. */
  readonly evidence: 'used' | 'unused' | 'silent';
  /** The reason for the evidence, human-readable. */
  readonly why: string;
}

/** One thing in the kernel or on disk that carries the name of an attachment. */
interface Trace extends Judgement {
  /** As noted: if the note was too long, it has a digest instead of the container id. */
  readonly owner: AttachmentId;
  /** Human-readable: `link "veth12345678"`. */
  readonly what: string;
}

/** Facts to judge traces by. They are collected after the traces were found. */
export interface Witnesses {
  /** Index of a device of this namespace, to the path of the namespace of its other end. */
  readonly farEnds: ReadonlyMap<number, string>;
  /** The other namespace in which an interface has the address, human-readable. */
  holderOf(address: string): string | undefined;
  /** Whether other devices redirect packets to the one with this index. */
  isLedTo(index: number): boolean;
  /** The attachment that the lease of the address names, if there is one. */
  lesseeOf(address: string): Interface | undefined;
}
