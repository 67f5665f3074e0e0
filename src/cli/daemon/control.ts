// What do `catena daemon --ping`, `--stop` and `--status` do?
import { defined } from '../../cni/json.ts';
import { type DaemonState, describePing } from '../../daemon/protocol.ts';
import { findRunning, type Ping, ping, stopRunning } from '../../daemon/running.ts';
import { count } from '../../lab/words.ts';
import type { Drift, WatchState } from '../../watch/settings.ts';
import { inEnvelope, outOfEnvelope } from '../answers/envelope.ts';
import { type CommandCall, runDirOf, secondsOf, TOOL_VERSION } from '../command.ts';
import { DAEMON_EXIT_CODES } from '../exit-codes.ts';
import { callByName } from '../failure.ts';
import { isData, printData } from '../output/format.ts';
import { printAnswer } from '../output/print.ts';

/** Says what another daemon does, or ends it. */
export function run(call: CommandCall): Promise<number> {
  if (call.on('ping')) return pingDaemon(call);
  return call.on('stop') ? stopDaemon(call) : showStatus(call);
}

/** Ends the daemon in an orderly way. It is no failure if there is none. */
async function stopDaemon(call: CommandCall): Promise<number> {
  const dir = runDirOf(call);
  const daemon = await findRunning(dir);
  const problem = daemon && (await stopRunning(daemon));
  const pid = daemon?.state?.pid;
  const stopped = daemon !== undefined && problem === undefined;
  await printAnswer(call, 'DaemonEnd', { stopped, ...defined({ pid, problem }) }, () => {
    if (daemon === undefined) return `no daemon runs in "${dir}"\n`;
    return stopped ? `process ${pid ?? 'unknown'} has ended\n` : '';
  });
  if (problem === undefined) return 0;
  if (!isData(call)) call.err(`catena: Cannot stop the daemon in "${dir}": ${problem}\n`);
  return 1;
}

/** Describes the daemon. Exit code 3 if none runs, 5 if it does not answer. */
async function showStatus(call: CommandCall): Promise<number> {
  const dir = runDirOf(call);
  const daemon = await findRunning(dir);
  const { state } = daemon ?? {};
  // As `catena daemon --ping --json` says it.
  const found = daemon === undefined ? 'absent' : state === undefined ? 'silent' : 'alive';
  await printAnswer(call, 'DaemonStatus', { state: found, ...(state && outOfEnvelope(state)) }, () => {
    if (daemon === undefined) return `no daemon runs in "${dir}"\n`;
    return state ? describe(state, daemon.socket) : '';
  });
  if (daemon && !state && !isData(call))
    call.err(`catena: the daemon on "${daemon.socket}" does not answer\n`);
  return DAEMON_EXIT_CODES[found];
}

const STARTED_BY = { command: 'by a command', systemd: 'by systemd', 'on-demand': 'on demand, by a call' };

function describe(state: DaemonState, socket: string): string {
  const { pool, declined = {}, sockets = [socket], idleExitSeconds, uptimeSeconds, startedBy } = state;
  const reasons = Object.entries(declined).map(([reason, { count }]) => `${count} (${reason})`);
  const requests = [
    [state.running, 'in progress'],
    [state.queued, 'waiting'],
    [state.served, 'served'],
  ];
  const rows: [string, string | undefined][] = [
    ['process', `${state.pid}, ${uptimeSeconds === undefined ? 'running' : `up ${uptimeSeconds} s`}`],
    ['build', [state.version, state.program].filter(Boolean).join(', ') || undefined],
    ['started', startedBy && STARTED_BY[startedBy]],
    ['sockets', sockets.join(', ')],
    [
      'requests',
      requests
        .filter(([number]) => number !== undefined)
        .map(words => words.join(' '))
        .join(', ') || undefined,
    ],
    ['workers', pool && `${pool.workers}, of which ${pool.busy} busy`],
    ['declined', reasons.join(', ') || 'none'],
    ['idle exit', idleExitSeconds === undefined ? undefined : `after ${idleExitSeconds} s`],
    ['watch', state.watch && describeWatch(state.watch)],
    ...(state.watch ? [...state.watch.drifted, ...state.watch.givenUp] : []).map(driftRow),
    ['problem', state.problem],
  ];
  const shown = rows.filter(([, text]) => text !== undefined);
  return shown.map(([name, text]) => `${name.padEnd(9)}  ${text}\n`).join('');
}

function describeWatch({ policy, attachments, drifted, givenUp, lastCheck }: WatchState): string {
  if (policy === 'off') return 'off';
  const last = lastCheck === undefined ? 'none checked yet' : `last check ${lastCheck}`;
  return `${policy}, ${count(attachments, 'attachment')}, ${drifted.length} drifted, ${givenUp.length} given up, ${last}`;
}

function driftRow({ network, containerId, ifname, problem }: Drift): [string, string] {
  const what = `"${ifname}" of container "${containerId}" of network "${network}": ${problem}`;
  return ['drifted', callByName(what)];
}

const PING_DEADLINE_S = 2;

/** Prints one line about the daemon, for probes; the exit code says the same. */
async function pingDaemon(call: CommandCall): Promise<number> {
  const seconds = secondsOf(call, 'deadline', PING_DEADLINE_S, { most: 3_600 });
  const dir = runDirOf(call);
  const found = await ping(dir, seconds * 1_000);
  if (isData(call)) await printData(call, inEnvelope('Ping', found));
  else if (found.state === 'alive') call.out(`${describePing(found.reply)}\n`);
  else call.err(`catena: ${problemOf(found, dir, seconds)}\n`);
  return DAEMON_EXIT_CODES[found.state];
}

function problemOf(found: Exclude<Ping, { state: 'alive' }>, dir: string, seconds: number): string {
  if (found.state === 'absent') return `no daemon listens in "${dir}"`;
  if (found.state === 'silent') return `the daemon in "${dir}" did not answer within ${seconds} s`;
  const whose = 'reply' in found && found.reply ? describePing(found.reply) : 'a daemon';
  return `the daemon in "${dir}" is another build than this command, ${TOOL_VERSION}: ${whose}`;
}
