// Is the stored state readable and complete, is there room for more, and have containers what their ADD gave them?

import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type KnownAttachment, pastOf } from '../../../attachments/store.ts';
import { parseFrozen } from '../../../chain/config/conflist.ts';
import { programOf } from '../../../chain/config/find-plugin.ts';
import type { Runtime } from '../../../chain/run/runtime.ts';
import type { SegmentRunner } from '../../../chain/run/segment.ts';
import { keyOf, shortId } from '../../../cni/attachment.ts';
import { COMMAND_NAME, lockScopeOf } from '../../../cni/directories.ts';
import { attempt, succeeds } from '../../../cni/errors.ts';
import { leaseDirsOf, typesIn } from '../../../cni/plugin-about.ts';
import { identityOf } from '../../../daemon/who-listens.ts';
import { isOwnTable } from '../../../netlink/tables.ts';
import { findFlockHolder, isFlockAwaited } from '../../../sys/flock.ts';
import { findGone, type Gone } from '../../../watch/collect-gone.ts';
import {
  type AttachmentCheck,
  CHECK_BUDGET_MS,
  checkAll,
  deleteCommand,
  forgetCommand,
} from '../../../watch/examine.ts';
import { BLINDNESS } from '../../garbage/find-traced.ts';
import { withoutKeys } from '../../words.ts';
import {
  type Check,
  type DaemonState,
  groupBy,
  isDenied,
  isHidden,
  type NodeView,
  namePods,
  type Problem,
  problem,
  ROOT,
  type Seen,
  titleIn,
  unseen,
} from '../finding.ts';

/** Unreadable records of attachments. */
export const damaged: Check = ({ facts, stateDir }) => {
  const { attachments, damaged } = facts.attachments();
  if (isHidden(stateDir)) return [unseen(`records in "${stateDir}"`)];
  const count = (what: 'entry' | 'stateDir') => attachments.filter(one => one[what] !== undefined).length;
  if (damaged.length === 0) return `${count('entry')} results and ${count('stateDir')} records, all readable`;
  return damaged.map(({ message }) =>
    isDenied(message)
      ? problem('unexamined', message)
      : problem('error', message, 'delete the container, then remove the file'),
  );
};

/** Without space or permissions no record can be written, and an ADD that could not be rolled back is not begun. */
export const storage: Check = ({ facts, findAbout, findStorageProblem, user = ROOT, ...node }) => {
  const leases = facts.networks().networks.flatMap(({ list }) => leaseDirsOf(list, findAbout));
  const dirs = [...new Set([node.stateDir, node.cacheDir, node.runDir, ...leases])];
  const problems = dirs.flatMap(dir => {
    const why = findStorageProblem(dir);
    if (why === undefined) return [];
    const full = `df -h ${dir}; df -i ${dir}; findmnt -T ${dir}`;
    if (!isDenied(why)) return problem('error', `Cannot write to "${dir}": ${why}`, full);
    // Plugins usually run as root, so another user's missing permissions say nothing about them.
    if (user.id !== 0) return unseen(`whether root can write to "${dir}"`);
    const found = `Cannot write to "${dir}" as user ${user.id}: ${why}`;
    return problem('error', found, `ls -ld "${dir}"; findmnt -T "${dir}"`);
  });
  return problems.length ? problems : `${dirs.length} directories are writable`;
};

/** Attachments that are neither complete nor removed. */
export const unsettled: Check = node => {
  const { facts, stateDir, ownNames } = node;
  if (isHidden(stateDir)) return [unseen(`operations recorded in "${stateDir}"`)];
  const { attachments, unsettled } = facts.attachments();
  const say = ({ containerId, ifname, network }: KnownAttachment, why: string) =>
    `container "${titleIn(node, containerId)}", interface "${ifname}", on network "${network}": ${why}`;
  // What a third-party plugin refuses again and again, no repair deletes.
  const isHopeless = ({ attempts, lastErrors, stateDir: journal = '', source }: KnownAttachment) => {
    const { plugins = [] } = attempt(() => parseFrozen(source)) ?? {};
    const isForeign = (index = -1) =>
      typesIn(plugins[index]?.conf ?? {}).some(type => !ownNames.includes(type));
    const isPod = lockScopeOf(journal) === 'pods';
    return (
      attempts > 1 && !isPod && lastErrors.length > 0 && lastErrors.every(({ index }) => isForeign(index))
    );
  };
  // A network that hinders the repair of its pod comes first.
  const hopeless = unsettled.filter(({ record }) => isHopeless(record));
  const problems = [
    ...[...new Set([...hopeless, ...unsettled])].map(one => {
      const { record, why } = one;
      const mend = hopeless.includes(one) ? forgetCommand(record) : `catena repair ${record.network}`;
      return problem('warning', say(record, why), mend);
    }),
    ...attachments.flatMap(one => {
      const { kind, why = '', netns, refuseElsewhere } = pastOf(one, process.env);
      if (kind !== 'elsewhere') return [];
      // After a system container, such as a node of kind, was restarted, only a person knows that its namespaces are gone.
      const isGone = netns() === 'gone' && succeeds(refuseElsewhere);
      return problem(
        'info',
        say(one, why),
        isGone ? `${deleteCommand(one)}  # if the container is gone` : undefined,
      );
    }),
  ];
  return problems.length ? problems : 'no operation is unfinished';
};

/** Attachments whose namespace is gone and for which no runtime has called DEL. */
export const abandoned: Check = node => {
  const gone = goneIn(node);
  if (gone.length === 0) return 'the namespaces of all attachments exist';
  const groups = groupBy(
    gone,
    ({ one, isSure }) => `${isSure} ${isSure || one.devices.length > 0} ${one.network}`,
  );
  return [...groups.values()].map(those => {
    const [what, their] = those.length === 1 ? ['attachment', 'its'] : ['attachments', 'their'];
    const which = `${those.length} ${what} of network "${those[0]?.one.network}"`;
    const mend = mendGone(those);
    if (those[0]?.isSure)
      return problem('warning', `${which} outlived ${their} namespace: the runtime did not run DEL`, mend);
    const why = mend
      ? 'and no device on the host shows whether it is gone'
      : `but ${their} devices on the host are there`;
    return problem('info', `the namespace of ${which} is not visible here, ${why}`, mend);
  });
};

/** Attachments whose namespace cannot be found. */
export function goneIn({ facts, devices }: NodeView): Gone[] {
  const names = new Set(devices.map(({ name }) => name));
  return findGone(facts.attachments().standing, process, () => names);
}

/**
 * What deletes them. Undefined if their devices on the host say that their namespaces exist. What has none there, as a macvlan, GC
 * keeps: that its namespace is gone, only a person knows.
 */
export function mendGone(gone: readonly Gone[]): string | undefined {
  if (gone.some(({ isSure }) => isSure)) return 'catena gc --gone';
  const commands = gone.flatMap(({ one }) => (one.devices.length ? [] : deleteCommand(one.pod?.id ?? one)));
  return commands.length ? `${commands.join(' && ')}  # if the containers are gone` : undefined;
}

/** What carries the name of an attachment that nothing records and nothing uses: its ADD and DEL have both failed. */
export const garbage: Check = ({ facts, held, user = ROOT }) => {
  if (user.id !== 0) return [unseen('what attachments without a record have left')];
  const { attachments, damaged } = facts.attachments();
  if (damaged.length) return 'not looked for: what nothing records may be in records that cannot be read';
  const known = attachments.map(({ containerId, ifname }) => ({ containerID: containerId, ifname }));
  const keys = new Set(attachments.map(keyOf));
  const left = facts
    .networks()
    .networks.flatMap(({ list }) => (held?.(list, known) ?? []).map(one => ({ network: list.name, ...one })))
    .filter(one => !keys.has(keyOf(one)) && (one.inUse === undefined || one.inUse === BLINDNESS));
  if (left.length === 0) return 'nothing is left of an attachment without a record';
  if (left.some(({ inUse }) => inUse !== undefined))
    return [problem('unexamined', `what attachments without a record hold: ${BLINDNESS}`)];
  return left.map(({ network, containerId, ifname, isNamed, traces }) => {
    const left =
      traces.length > 1 ? `${traces.length} things of it are left, such as its` : 'there is still its';
    const found = `container "${shortId(containerId)}", interface "${ifname}", on network "${network}" has no record and is gone, but ${left} ${traces.at(-1)}`;
    return problem('warning', found, isNamed ? deleteCommand({ network, containerId, ifname }) : undefined);
  });
};

/** A lock that is held for a long time blocks every container. */
export const locks: Check = node => {
  if (isHidden(node.runDir)) return [unseen(`locks in "${node.runDir}"`)];
  const problems = lockFilesOf(node).flatMap(path => {
    const file = statSync(path, { throwIfNoEntry: false });
    const holder = file && findFlockHolder(file);
    if (!file || holder === undefined) return [];
    const found = `"${path}" is held by ${holder}`;
    if (!isFlockAwaited(file))
      return problem('info', `${found}; if this persists, containers wait for it`, 'check again in a while');
    const pid = /\d+/.exec(holder)?.[0];
    const all = `${found}, and others wait: no container comes or goes with what it guards until that process lets go or ends`;
    return problem('warning', all, `ps -o pid,ppid,lstart,args -p ${pid}; kill ${pid}`);
  });
  return problems.length ? problems : 'no lock is held';
};

/** A daemon has these as long as it runs; containers never wait for them. */
const SEATS = ['watch.lock', 'between.lock'];

function lockFilesOf({ runDir, facts, findAbout, list }: NodeView): string[] {
  const own = list(runDir)
    .filter(name => name.endsWith('.lock') && !SEATS.includes(name))
    .map(name => `${runDir}/${name}`);
  const leases = facts
    .networks()
    .networks.flatMap(({ list: network }) => leaseDirsOf(network, findAbout).map(dir => `${dir}/lock`));
  return [...own, ...new Set(leases)];
}

/**
 * Runs CHECK for every existing attachment, whichever runtime made it, with the configuration of its ADD.
 * @param openSegments makes what runs one chain at a time
 */
export async function checkAttachments(
  node: NodeView,
  runtime: Runtime,
  openSegments: () => SegmentRunner,
): Promise<Seen> {
  const { facts, pods, user = ROOT } = node;
  // In a user namespace, root may enter the namespaces of its own containers, and no others.
  if (user.id !== 0 || (user.unknown !== undefined && pods === undefined))
    return [problem('unexamined', 'whether containers have what their ADD gave them')];
  const { standing } = facts.attachments();
  const checks = await checkAll(standing, runtime, { budgetMs: CHECK_BUDGET_MS, openSegments });
  const flushed = checks.filter(isFlushed);
  const others = checks.filter(one => !isFlushed(one));
  const problems = [
    ...describeFlushed(flushed, node),
    ...describeBroken(others, node),
    ...describeUnknown(others, node),
  ];
  const sound = checks.filter(({ state }) => state === 'sound').length;
  return problems.length ? problems : `${sound} are as their ADD left them`;
}

/** As CHECK says it of tables of ours. */
const TABLE_MISSING = /(table "\w+ catena_\w+") is missing/;

function isFlushed({ problem = '', mend }: AttachmentCheck): boolean {
  return TABLE_MISSING.test(problem) && mend?.startsWith('catena repair ') === true;
}

/** What deletes a table of ours concerns all that have rules there: it is told at once. */
function describeFlushed(checks: readonly AttachmentCheck[], node: NodeView): Problem[] {
  if (checks.length === 0) return [];
  const tables = new Set(checks.flatMap(({ problem = '' }) => TABLE_MISSING.exec(problem)?.[1] ?? []));
  const isAnyLeft = node.facts.kernel.nftTables.some(isOwnTable);
  const cause = isAnyLeft ? `something deleted ${[...tables].join(', ')}` : 'something flushed nf_tables';
  const mends = new Set(checks.map(({ mend }) => mend));
  return [
    problem('error', `${cause}: the rules of ${namePods(checks, node)} are gone`, [...mends].join(' && ')),
  ];
}

/** What many have lost alike, as the address of their bridge or the elements of a set, is one problem. */
function describeBroken(checks: readonly AttachmentCheck[], node: NodeView): Problem[] {
  const broken = checks.filter(({ state }) => state === 'broken');
  const alike = groupBy(broken, one =>
    JSON.stringify([one.network, withoutKeys(one.problem ?? ''), one.mend]),
  );
  return [...alike.values()].flatMap(those => {
    const [first] = those;
    if (first === undefined) return [];
    const { network, containerId, ifname, mend } = first;
    if (those.length > 1) {
      const found = `${namePods(those, node)} are not as their ADD left them: ${withoutKeys(first.problem ?? '')}`;
      return [problem('error', found, mend)];
    }
    const title = titleIn(node, containerId);
    const found = `interface "${ifname}" of container "${title}" on network "${network}" is not as its ADD left it: ${first.problem}`;
    return [{ ...problem('error', found, mend), attachment: { network, containerId, ifname } }];
  });
}

/** One problem for each reason. A runtime's loopback attachment has nothing to check. */
function describeUnknown(checks: readonly AttachmentCheck[], node: NodeView): Problem[] {
  const unknown = checks.filter(({ state, ifname }) => state === 'unknown' && ifname !== 'lo');
  return [...groupBy(unknown, one => one.problem ?? '').values()].map(those => {
    const [first] = those;
    const found = `${namePods(those, node)} cannot be checked: ${first?.problem}`;
    const severity = first?.unchecked ? 'info' : 'unexamined';
    return problem(severity, found, first?.late && 'catena repair --dry-run');
  });
}

/** Finds a daemon that runs without serving any calls. No daemon at all is fine: plugins then do their work themselves. */
export const daemon: Check = node => {
  const view = node.daemon ?? { kind: 'none' };
  if (view.kind === 'none') return 'no daemon runs: plugins work without it';
  const { socket } = view;
  if (view.kind === 'hidden')
    return [problem('unexamined', `whether a daemon listens on "${socket}": this user may not connect`)];
  if (view.kind === 'gone') {
    const found = `no process listens on "${socket}": its daemon no longer runs`;
    return [problem('warning', found, 'start catena daemon, or remove the socket')];
  }
  if (view.kind === 'silent') {
    const who = view.holder ?? 'the daemon';
    const found = `${who} does not respond on "${socket}" within 1 s: every plugin call waits that long before it works without the daemon`;
    const [, pid] = /^process (\d+)/.exec(who) ?? [];
    const hint = 'restart it; it is stopped by SIGSTOP, or its cgroup is frozen';
    return [problem('warning', found, pid === undefined ? hint : `kill -CONT ${pid}  # or ${hint}`)];
  }
  const { state, here } = view;
  const silence = `it serves no calls: ${state.problem}`;
  const problems = [
    ...judgeNamespaces(state, here),
    ...judgeBuild(state, node, here.executable),
    ...judgeFronts(node),
    ...(state.problem === undefined ? [] : [problem('warning', silence, 'check its log and restart it')]),
    ...judgeDeclined(state),
  ];
  return problems.length ? problems : `process ${state.pid} serves the calls of this node`;
};

function judgeNamespaces({ place, pid }: DaemonState, here: { network: string; mount: string }): Problem[] {
  const other = (['network', 'mount'] as const).filter(kind => place && place[kind] !== here[kind]);
  if (other.length === 0) return [];
  const found = `process ${pid} is in another ${other.join(' and ')} namespace than this command: it declines calls from here`;
  return [problem('warning', found, 'start it in the namespaces in which the runtime calls plugins')];
}

/** The same build under another path is a different file, too: plugins and daemon must be one file. */
function judgeBuild({ place, pid, version }: DaemonState, { pluginDirs }: NodeView, own: string): Problem[] {
  if (place === undefined) {
    const found = `process ${pid} is a daemon of an earlier build: it declines calls of this one`;
    return [problem('warning', found, 'restart the daemon')];
  }
  // What counts is the program that the file executes.
  const installed = installedIn(pluginDirs).map(programOf);
  const other = installed.filter(file => attempt(() => identityOf(file)) !== place.executable);
  const isOwnOther = installed.length === 0 && own !== place.executable;
  if (other.length === 0 && !isOwnOther) return [];
  const names = isOwnOther ? 'this command' : other.map(file => JSON.stringify(file)).join(', ');
  const found = `process ${pid} (version ${version}) is another executable than ${names}: it declines calls of that one`;
  return [problem('warning', found, 'restart the daemon from the executable that is installed')];
}

function installedIn(pluginDirs: readonly string[]): string[] {
  return pluginDirs.map(dir => join(dir, COMMAND_NAME)).filter(file => existsSync(file));
}

/** Only a front asks the daemon. */
function judgeFronts({ pluginDirs }: NodeView): Problem[] {
  const alone = installedIn(pluginDirs).filter(file => programOf(file) === file);
  if (alone.length === 0) return [];
  const found = `${alone.map(file => JSON.stringify(file)).join(', ')} was built without a C compiler: it and the plugins beside it ask no daemon`;
  return [problem('info', found, 'install a build that has the front')];
}

/** Reasons that pass without any action. */
const UNIMPORTANT = ['ending'];

function judgeDeclined({ declined = {} }: DaemonState): Problem[] {
  const told = Object.entries(declined).filter(([reason]) => !UNIMPORTANT.includes(reason));
  if (told.length === 0) return [];
  const parts = told.map(([reason, { count, last }]) => `${count} for "${reason}" (last ${last})`);
  const found = `it has declined calls since its start, which the clients ran themselves: ${parts.join(', ')}`;
  return [problem('info', found, 'its log explains each reason')];
}
