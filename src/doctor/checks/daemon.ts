// Does the daemon serve the calls of this node?
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { COMMAND_NAME } from '../../chain/config/core-name.ts';
import { programOf } from '../../chain/config/own-executable.ts';
import type { DaemonState } from '../daemon-view.ts';
import { type Check, type Finding, fine, type NodeView } from '../finding.ts';

/** Finds a daemon that runs without serving any calls. No daemon at all is fine: plugins then do their work themselves. */
export const daemon: Check = {
  id: 'daemon',
  run(node) {
    const view = node.daemon ?? { kind: 'none' };
    if (view.kind === 'none') return fine(this.id, 'no daemon runs: plugins work without it');
    const { socket } = view;
    if (view.kind === 'hidden') {
      const found = `whether a daemon listens on "${socket}": this user may not connect`;
      return [{ id: this.id, severity: 'unexamined', found }];
    }
    if (view.kind === 'gone') {
      return [
        warn(
          `no process listens on "${socket}": its daemon no longer runs`,
          'start catena daemon, or remove the socket',
        ),
      ];
    }
    if (view.kind === 'silent') {
      const who = view.holder ?? 'the daemon';
      const found = `${who} does not respond on "${socket}" within 1 s: every plugin call waits that long before it works without the daemon`;
      const [, pid] = /^process (\d+)/.exec(who) ?? [];
      const hint = 'restart it; it is stopped by SIGSTOP, or its cgroup is frozen';
      return [warn(found, pid === undefined ? hint : `kill -CONT ${pid}  # or ${hint}`)];
    }
    const { state, here } = view;
    const findings = [
      ...judgeNamespaces(state, here),
      ...judgeBuild(state, node, here.executable),
      ...judgeFronts(node),
      ...(state.problem === undefined ? [] : [warn(`it serves no calls: ${state.problem}`, LOG_HINT)]),
      ...judgeDeclined(state),
    ];
    return findings.length ? findings : fine(this.id, `process ${state.pid} serves the calls of this node`);
  },
};

const LOG_HINT = 'check its log and restart it';

function warn(found: string, mend: string): Finding {
  return { id: daemon.id, severity: 'warning', found, mend };
}

function judgeNamespaces({ place, pid }: DaemonState, here: { network: string; mount: string }): Finding[] {
  const other = (['network', 'mount'] as const).filter(kind => place && place[kind] !== here[kind]);
  if (other.length === 0) return [];
  const found = `process ${pid} is in another ${other.join(' and ')} namespace than this command: it declines calls from here`;
  return [warn(found, 'start it in the namespaces in which the runtime calls plugins')];
}

/** The same build under another path is a different file, too: plugins and daemon must be one file. */
function judgeBuild({ place, pid, version }: DaemonState, { pluginDirs }: NodeView, own: string): Finding[] {
  if (place === undefined) {
    const found = `process ${pid} is a daemon of an earlier build: it declines calls of this one`;
    return [warn(found, 'restart the daemon')];
  }
  // What counts is the program that the file executes.
  const installed = installedIn(pluginDirs).map(programOf);
  const other = installed.filter(file => identityOf(file) !== place.executable);
  const isOwnOther = installed.length === 0 && own !== place.executable;
  if (other.length === 0 && !isOwnOther) return [];
  const names = isOwnOther ? 'this command' : other.map(file => JSON.stringify(file)).join(', ');
  const found = `process ${pid} (version ${version}) is another executable than ${names}: it declines calls of that one`;
  return [warn(found, 'restart the daemon from the executable that is installed')];
}

function installedIn(pluginDirs: readonly string[]): string[] {
  return pluginDirs.map(dir => join(dir, COMMAND_NAME)).filter(file => existsSync(file));
}

/** Only a front asks the daemon. */
function judgeFronts({ pluginDirs }: NodeView): Finding[] {
  const alone = installedIn(pluginDirs).filter(file => programOf(file) === file);
  if (alone.length === 0) return [];
  const found = `${alone.map(file => JSON.stringify(file)).join(', ')} was built without a C compiler: it and the plugins beside it ask no daemon`;
  return [{ id: daemon.id, severity: 'info', found, mend: 'install a build that has the front' }];
}

function identityOf(file: string): string | undefined {
  const stat = statSync(file, { throwIfNoEntry: false });
  return stat && `${stat.dev}:${stat.ino}`;
}

/** Reasons that pass without any action. */
const UNIMPORTANT = ['ending'];

function judgeDeclined({ declined = {} }: DaemonState): Finding[] {
  const told = Object.entries(declined).filter(([reason]) => !UNIMPORTANT.includes(reason));
  if (told.length === 0) return [];
  const parts = told.map(([reason, { count, last }]) => `${count} for "${reason}" (last ${last})`);
  const found = `it has declined calls since its start, which the clients ran themselves: ${parts.join(', ')}`;
  return [{ id: daemon.id, severity: 'info', found, mend: 'its log explains each reason' }];
}
