// Does the daemon serve the calls of this node?
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { COMMAND_NAME } from '../../../chain/config/core-name.ts';
import { programOf } from '../../../chain/config/own-executable.ts';
import type { DaemonState } from '../daemon-view.ts';
import { type Check, type NodeView, type Problem, problem } from '../finding.ts';

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
  const other = installed.filter(file => identityOf(file) !== place.executable);
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

function identityOf(file: string): string | undefined {
  const stat = statSync(file, { throwIfNoEntry: false });
  return stat && `${stat.dev}:${stat.ino}`;
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
