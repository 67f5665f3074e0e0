// What does tuning do for each verb?

import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { CniError, describeError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import { tryRead } from '../../src/files/read-file.ts';
import { requireLinkChanges } from '../../src/netlink/rtnl/kinds.ts';
import {
  findHostEnd,
  findLink,
  getLink,
  IFF_ALLMULTI,
  IFF_PROMISC,
  type Link,
  type LinkChange,
  setLinkRequest,
} from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { withContainerLock } from '../../src/plugin/lock.ts';
import { problemsOf, requireResult } from '../../src/plugin/steps.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import { findSysctl, requireWritableSysctl, writeSysctl } from '../../src/sys/sysctl.ts';
import { readAllowlist, refuseUnlisted, type Sysctl } from './allowlist.ts';
import {
  asLast,
  type Backup,
  backupPathOf,
  findBackup,
  findStaleBackups,
  isEmpty,
  mergeBackups,
  type Neighbour,
  passOn,
  removeBackup,
  splitBackup,
  writeBackup,
} from './backup.ts';
import { TuningConf } from './config.ts';
import {
  type DeviceTuning,
  findDifferences,
  findOverridden,
  findPath,
  planResult,
  planTuning,
  refuseLossOfIpv6,
  type TuningPlan,
  type TuningState,
} from './plan.ts';

const NO_RESULT =
  'Cannot tune: required prevResult missing; tuning must come after the plugin that makes the interface';

/** Sets sysctls and attributes of an interface that earlier plugins made. */
export const plugin = definePlugin({
  name: 'tuning',
  config: TuningConf,
  netns: 'required',
  changeable: ['sysctl', 'mac', 'mtu', 'promisc', 'allmulti', 'txQLen'],

  add(call) {
    const { ifname, netns } = call.env;
    const { plan, prevResult } = prepare(call);
    inTurn(call, plan.sysctls.length > 0, () => tune(call, plan));
    warnOfOtherEnd(call, plan.link.mtu);
    return planResult(prevResult, plan.link, ifname, netns);
  },

  check(call) {
    refuseRepeatedSysctl(call);
    const { ifname } = call.env;
    const plan = planTuning(call.conf, call.args, ifname);
    requireResult(call, NO_RESULT);
    const differences = findDifferences(plan, readState(targetOf(call), plan));
    if (differences.length === 0) return;
    throw new Error(`Cannot confirm tuning of "${ifname}" in "${call.env.netns}": ${differences.join('; ')}`);
  },

  repair(call) {
    const plan = planAllowed(call);
    const target = targetOf(call);
    const state = readState(target, plan);
    // The backup made by ADD is kept: it holds the values from before the attachment.
    if (findDifferences(plan, state).length === 0) return;
    applySysctls(target, plan.sysctls, state);
    applyDevice(target, plan.link, state);
  },

  change(call, mode, former) {
    const { ifname, netns } = call.env;
    const { plan, prevResult } = prepare(call);
    const past = former && planTuning(former, call.args, ifname);
    if (mode === 'look') {
      const why = former && findOverridden(call.conf, former, call.args);
      if (why) throw invalidConfig(`Cannot change "${ifname}": ${why}, which takes precedence`);
      readState(targetOf(call), plan);
      return prevResult;
    }
    const obsolete = inTurn(call, true, () => tuneAgain(call, plan, past));
    const { mac = obsolete.mac, mtu = obsolete.mtu } = plan.link;
    return planResult(prevResult, defined({ mac, mtu }), ifname, netns);
  },

  del(call) {
    const path = fileOf(call);
    const backup = findBackup(path);
    if (backup === undefined) return removeBackup(path);
    // DEL must succeed even if a value cannot be restored.
    const problems = call.findContainerNetns() ? giveBack(call, backup) : [];
    for (const problem of problems) call.log.warn(problem, { container_id: call.env.containerId });
    if (problems.length === 0) removeBackup(path);
  },

  gc(call) {
    const { kept, conf, network } = call;
    if (kept === undefined) return;
    for (const path of findStaleBackups(conf.dataDir, network, kept)) removeBackup(path);
  },

  status(call) {
    try {
      probeTuning(call);
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, describeError(cause), { cause });
    }
  },
});

/** What ADD and a change set, unless it is refused, and the result that they follow. */
function prepare(call: Call<TuningConf>) {
  refuseRepeatedSysctl(call);
  const plan = planAllowed(call);
  const prevResult = requireResult(call, NO_RESULT);
  refuseLossOfIpv6(plan.link, prevResult, call.env.ifname);
  return { plan, prevResult };
}

/** An unreadable list is no reason to reject an attachment that sets no sysctl. */
function planAllowed({ conf, args, env }: Call<TuningConf>): TuningPlan {
  const plan = planTuning(conf, args, env.ifname);
  if (plan.sysctls.length === 0) return plan;
  return { ...plan, sysctls: refuseUnlisted(plan.sysctls, readAllowlist()) };
}

/** Sets what the plan says. Never overwrites the values that an earlier ADD recorded; a failed ADD leaves values and file as they were. */
function tune(call: Call<TuningConf>, plan: TuningPlan): void {
  const target = targetOf(call);
  const state = readState(target, plan);
  const path = fileOf(call);
  const older = findBackup(path);
  const found = backupOf(plan, state);
  const backup = asLast(found, older ?? {}, neighboursOf(call, found));
  if (!isEmpty(backup)) {
    writeBackup(path, mergeBackups(older ?? {}, { ...backup, network: call.network }));
    call.onFailure('restore the backup', () => (older ? writeBackup(path, older) : removeBackup(path)));
  }
  // What an earlier ADD has set was not found by the interfaces that came after it.
  const undo = older ? () => restore(target, backup) : () => giveBack(call, backup);
  call.onFailure('restore the original values', () => refuseAny(undo()));
  applySysctls(target, plan.sysctls, state);
  applyDevice(target, plan.link, state);
}

/**
 * Sets what the plan says now, and restores what it no longer says.
 * @param past what it said before
 * @returns what was restored
 */
function tuneAgain(call: Call<TuningConf>, plan: TuningPlan, past: TuningPlan | undefined): Backup {
  const target = targetOf(call);
  const state = readState(target, plan);
  const found = backupOf(plan, state);
  const path = fileOf(call);
  const older = findBackup(path) ?? {};
  // What is set is in the backup at every moment, so that DEL and another change find it after a crash.
  const last = asLast(found, older, neighboursOf(call, found));
  const whole = mergeBackups(older, { ...last, network: call.network });
  writeBackup(path, whole);
  applySysctls(target, plan.sysctls, state);
  applyDevice(target, plan.link, state);
  const { needed, obsolete } = splitBackup(whole, found, past);
  refuseAny(restore(target, passOn(obsolete, neighboursOf(call, obsolete))));
  if (isEmpty(needed)) removeBackup(path);
  else writeBackup(path, needed);
  return obsolete;
}

function refuseAny(problems: readonly string[]): void {
  if (problems.length) throw new Error(problems.join('; '));
}

/** Restores the values of an interface, but for those that another one of the container has set since. @returns as restore() */
function giveBack(call: Call<TuningConf>, backup: Backup): string[] {
  return inTurn(call, backup.sysctl !== undefined, () => {
    let own = backup;
    const problems = problemsOf(() => {
      own = passOn(backup, neighboursOf(call, backup));
    });
    return [...problems, ...restore(targetOf(call), own)];
  });
}

/** @param isShared the work is about sysctls, which the interfaces of a container have in common */
function inTurn<T>(call: Call<TuningConf>, isShared: boolean, work: () => T): T {
  return isShared ? withContainerLock(call, work) : work();
}

/**
 * Backups of the container's other interfaces, if this one has sysctls to compare with them. The directory of all containers need not be
 * read.
 */
function neighboursOf({ conf, containerNetns, env }: Call<TuningConf>, { sysctl }: Backup): Neighbour[] {
  if (sysctl === undefined) return [];
  return interfacesIn(containerNetns).flatMap(name => {
    const path = backupPathOf(conf.dataDir, env.containerId, name);
    const backup = name === env.ifname ? undefined : findBackup(path);
    return backup?.sysctl ? { path, backup } : [];
  });
}

/** Names of the interfaces in a namespace (proc_pid_net(5), `dev`, two lines of headers): an ADD that sets sysctls alone opens no socket. */
function interfacesIn(netns: Netns): string[] {
  const table = inNetns(netns, () => tryRead('/proc/thread-self/net/dev')) ?? '';
  return table
    .split('\n')
    .slice(2)
    .flatMap(line => /^ *([^:]+):/.exec(line)?.[1] ?? []);
}

function fileOf(call: Call<TuningConf>): string {
  return backupPathOf(call.conf.dataDir, call.env.containerId, call.env.ifname);
}

function targetOf(call: Call<TuningConf>): Target {
  return { socket: call.container, netns: call.containerNetns, ifname: call.env.ifname };
}

/** The decoder would take the last of two equal keys. The reference rejects them, since the configuration cannot mean both. */
function refuseRepeatedSysctl(call: Call<TuningConf>): void {
  const key = findRepeatedKey(call.requestText, 'sysctl');
  if (key === undefined) return;
  throw invalidConfig(`Cannot use "sysctl": duplicated sysctl keys are not allowed, "${key}" occurs twice`);
}

/** What is larger than the other end takes is dropped there, and no host tells the sender. */
function warnOfOtherEnd(call: Call<TuningConf>, mtu = 0): void {
  if (mtu === 0) return;
  const { ifname } = call.env;
  const link = findLink(call.container, ifname);
  const other = link && findHostEnd(call, link);
  if (other === undefined || other.mtu >= mtu) return;
  call.log.warn(
    `"mtu" of "${ifname}" is ${mtu}, that of its other end "${other.name}" on the host ${other.mtu}: what is larger is lost; set "mtu" of the plugin that makes the interface`,
  );
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g;

interface Container {
  /** Keys so far; undefined for an array. */
  readonly keys: Set<string> | undefined;
  /** True for the object with the requested name. */
  readonly watched: boolean;
  key: string | undefined;
}

/**
 * The first key that occurs twice in the object that is the member `member` of the document.
 * @param text a valid JSON document
 * @param member compared case-insensitively, as members are everywhere
 */
export function findRepeatedKey(text: string, member: string): string | undefined {
  const stack: Container[] = [];
  let expectKey = false;
  for (const [token] of text.matchAll(TOKEN)) {
    const at = stack.at(-1);
    if (token === '{' || token === '[') {
      const watched = stack.length === 1 && at?.key?.toLowerCase() === member.toLowerCase();
      stack.push({ keys: token === '{' ? new Set() : undefined, watched, key: undefined });
      expectKey = token === '{';
    } else if (token === '}' || token === ']') {
      stack.pop();
      expectKey = false;
    } else if (token === ',') expectKey = at?.keys !== undefined;
    else if (token === ':') expectKey = false;
    else if (expectKey && at?.keys) {
      at.key = JSON.parse(token) as string;
      if (at.watched && at.keys.has(at.key)) return at.key;
      at.keys.add(at.key);
    }
  }
  return undefined;
}

/** Exists in every kernel with networking. */
const SOME_SYSCTL = 'net/core/somaxconn';

/**
 * Looks for anything that would make ADD fail: impossible values, the allowlist, a read-only /proc, missing rights, a backup
 * directory that cannot be written. Changes nothing.
 * @throws Error describing the obstacle
 */
function probeTuning({ conf, args, host }: Call<TuningConf>): void {
  const { sysctls, link } = planTuning(conf, args, 'eth0');
  const hasLink = hasAttributes(link);
  if (sysctls.length > 0) {
    refuseUnlisted(sysctls, readAllowlist());
    requireWritableSysctl(SOME_SYSCTL);
  }
  if (hasLink) requireLinkChanges(host);
  if (sysctls.length > 0 || hasLink) requireWritable(dirname(backupPathOf(conf.dataDir, 'id', 'eth0')));
}

/** ADD creates the directory, so what matters is the existing part of its path. */
function requireWritable(directory: string): void {
  try {
    const present = findPresent(directory);
    if (!statSync(present).isDirectory()) throw new Error(`"${present}" is not a directory`);
    accessSync(present, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(`Cannot keep backups in "${directory}": ${describeError(cause)}`, { cause });
  }
}

function findPresent(path: string): string {
  return existsSync(path) ? path : findPresent(dirname(path));
}

/** What tuning works on: a socket in the container's namespace, and the namespace itself for sysctls. */
interface Target {
  readonly socket: NetlinkSocket;
  readonly netns: Netns;
  readonly ifname: string;
}

/**
 * The current values of everything that the plan names.
 * @throws NetlinkError when attributes are to be set and the interface does not exist
 */
function readState({ socket, netns, ifname }: Target, plan: TuningPlan): TuningState {
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
function applySysctls({ netns }: Target, sysctls: readonly Sysctl[], state: TuningState): void {
  if (sysctls.length === 0) return;
  inNetns(netns, () => {
    for (const sysctl of sysctls) writeSysctl(getPath(sysctl, state), sysctl.value);
  });
}

/**
 * Sets the attributes, with one request each so that an error names the attribute, all sent at once.
 * Same as: `ip link set dev <ifname> address … promisc … mtu … allmulticast … txqueuelen …`
 */
function applyDevice({ socket }: Target, link: DeviceTuning, { index }: TuningState): void {
  if (index === undefined) return;
  socket.requestAll(changesOf(link).map(change => setLinkRequest(index, change)));
}

/** The backup of a state: the current values of what a plan is about to change. */
function backupOf(plan: TuningPlan, state: TuningState): Backup {
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
function restore({ socket, netns, ifname }: Target, backup: Backup): string[] {
  const { sysctl = {}, mtu, mac, promisc, allmulti, txQLen } = backup;
  const link = findLink(socket, ifname);
  const changes = link ? changesOf({ mtu, mac, promisc, allmulti, txQLen }) : [];
  const outcomes = socket.attemptAll(changes.map(change => setLinkRequest(link?.index ?? 0, change)));
  const problems = outcomes.flatMap(outcome => (outcome instanceof Error ? [outcome.message] : []));
  const entries = Object.entries(sysctl).reverse();
  if (entries.length === 0) return problems;
  return inNetns(netns, () => [
    ...problems,
    ...entries.flatMap(([path, value]) => problemsOf(() => restoreSysctl(path, value))),
  ]);
}

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
