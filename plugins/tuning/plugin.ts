// What does tuning do for each verb?
import { defined } from '../../src/cni/defined.ts';
import { CniError, describeError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { readAllowlist, refuseUnlisted } from './allowlist.ts';
import {
  type Backup,
  backupPathOf,
  findBackup,
  findStaleBackups,
  isEmpty,
  mergeBackups,
  removeBackup,
  splitBackup,
  writeBackup,
} from './backup.ts';
import { TuningConf } from './config.ts';
import { applyDevice, applySysctls, backupOf, readState, restore, type Target } from './kernel.ts';
import { findDifferences, planResult, planTuning, type TuningPlan } from './plan.ts';
import { findRepeatedKey } from './repeated-keys.ts';
import { probeTuning } from './status.ts';

/** Sets sysctls and attributes of an interface that earlier plugins made. */
export const tuning = definePlugin({
  name: 'tuning',
  config: TuningConf,
  netns: 'required',
  changeable: ['sysctl', 'mac', 'mtu', 'promisc', 'allmulti', 'txQLen'],

  add(call) {
    refuseRepeatedSysctl(call);
    const { ifname, netns } = call.env;
    const plan = planAllowed(call);
    const prevResult = prevResultOf(call);
    const target = targetOf(call);
    const state = readState(target, plan);
    const backup = backupOf(plan, state);
    if (Object.keys(backup).length > 0) keep(call, { ...backup, network: call.network });
    call.onFailure('restore the original values', () => restoreAll(target, backup));
    applySysctls(target, plan.sysctls, state);
    applyDevice(target, plan.link, state);
    warnOfOtherEnd(call, plan.link.mtu);
    return planResult(prevResult, plan.link, ifname, netns);
  },

  check(call) {
    refuseRepeatedSysctl(call);
    const { ifname } = call.env;
    const plan = planTuning(call.conf, call.args, ifname);
    prevResultOf(call);
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

  change(call, mode) {
    refuseRepeatedSysctl(call);
    const { ifname, netns } = call.env;
    const plan = planAllowed(call);
    const prevResult = prevResultOf(call);
    const target = targetOf(call);
    const state = readState(target, plan);
    const found = backupOf(plan, state);
    if (mode === 'look') return prevResult;
    const path = fileOf(call);
    const older = findBackup(path) ?? {};
    // What is set is in the backup at every moment, so that DEL and another change find it after a crash.
    const whole = mergeBackups(older, { ...found, network: call.network });
    writeBackup(path, whole);
    applySysctls(target, plan.sysctls, state);
    applyDevice(target, plan.link, state);
    const { needed, obsolete } = splitBackup(whole, found);
    restoreAll(target, obsolete);
    if (isEmpty(needed)) removeBackup(path);
    else writeBackup(path, needed);
    const { mac = obsolete.mac, mtu = obsolete.mtu } = plan.link;
    return planResult(prevResult, defined({ mac, mtu }), ifname, netns);
  },

  del(call) {
    const path = fileOf(call);
    const backup = findBackup(path);
    if (backup === undefined) return removeBackup(path);
    const netns = call.findContainerNetns();
    // DEL must succeed even if a value cannot be restored.
    const problems = netns ? restore({ socket: call.container, netns, ifname: call.env.ifname }, backup) : [];
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

/** An unreadable list is no reason to reject an attachment that sets no sysctl. */
function planAllowed({ conf, args, env }: Call<TuningConf>): TuningPlan {
  const plan = planTuning(conf, args, env.ifname);
  if (plan.sysctls.length === 0) return plan;
  return { ...plan, sysctls: refuseUnlisted(plan.sysctls, readAllowlist()) };
}

/** Never overwrites the values that an earlier ADD recorded; a failed ADD leaves the file as it was. */
function keep(call: Call<TuningConf>, backup: Backup): void {
  const path = fileOf(call);
  const older = findBackup(path);
  writeBackup(path, mergeBackups(older ?? {}, backup));
  call.onFailure('restore the backup', () => (older ? writeBackup(path, older) : removeBackup(path)));
}

function restoreAll(target: Target, backup: Backup): void {
  const problems = restore(target, backup);
  if (problems.length) throw new Error(problems.join('; '));
}

function fileOf(call: Call<TuningConf>): string {
  return backupPathOf(call.conf.dataDir, call.env.containerId, call.env.ifname);
}

function targetOf(call: Call<TuningConf>): Target {
  return { socket: call.container, netns: call.containerNetns, ifname: call.env.ifname };
}

function prevResultOf(call: Call<TuningConf>): Result {
  if (call.prevResult !== undefined) return call.prevResult;
  throw new CniError(
    ErrorCode.invalidConfig,
    'Cannot tune: required prevResult missing; tuning must come after the plugin that makes the interface',
  );
}

/** The decoder would take the last of two equal keys. The reference rejects them, since the configuration cannot mean both. */
function refuseRepeatedSysctl(call: Call<TuningConf>): void {
  const key = findRepeatedKey(call.requestText, 'sysctl');
  if (key === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot use "sysctl": duplicated sysctl keys are not allowed, "${key}" occurs twice`,
  );
}

/** What is larger than the other end takes is dropped there, and no host tells the sender. */
function warnOfOtherEnd({ container, host, env, log }: Call<TuningConf>, mtu = 0): void {
  if (mtu === 0) return;
  const link = findLink(container, env.ifname);
  if (link?.kind !== 'veth' || link.attrs.linkNetnsId === undefined) return;
  const other = findLink(host, link.peer);
  // The other end may be in a third namespace, and the index that of another device here.
  if (other?.kind !== 'veth' || other.peer !== link.index || other.mtu >= mtu) return;
  log.warn(
    `"mtu" of "${env.ifname}" is ${mtu}, that of its other end "${other.name}" on the host ${other.mtu}: what is larger is lost; set "mtu" of the plugin that makes the interface`,
  );
}
