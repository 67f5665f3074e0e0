// What does `catena log` do?
import { setTimeout as pause } from 'node:timers/promises';
import { readHistory } from '../../observe/history.ts';
import type { CommandCall } from '../command.ts';
import { renderLog } from '../log/render.ts';
import { fromHistory, type LogEntry, readTimeline } from '../log/timeline.ts';
import { printJson } from '../node/output.ts';
import { readNodeFor } from '../node/read.ts';
import { parseMoment } from '../node/times.ts';
import { runtimeOf } from '../target.ts';
import { traceDirFor } from '../watched.ts';

/** Milliseconds between two looks of `--follow`. */
const LOOK_AGAIN_MS = 500;

/** Shows what changed on this node, by whom and when. */
export async function run(call: CommandCall): Promise<number> {
  const since = parseMoment(call.text('since') ?? '1d');
  const { stateDir = '', pluginDirs } = runtimeOf(call);
  const before = readHistory(stateDir).length;
  const node = await readNodeFor(call);
  const entries = readTimeline({ node, stateDir, traceDir: traceDirFor(call), pluginDirs });
  const shown = entries.filter(one => Date.parse(one.time) >= since && isWanted(call, one));
  if (call.on('follow')) {
    print(call, shown);
    return follow(call, stateDir, before);
  }
  if (call.on('json')) printJson(call, { entries: shown });
  else call.out(renderLog(shown) || `nothing is on record since ${new Date(since).toISOString()}\n`);
  return 0;
}

/** Prints what the history gets; `--json` prints one object per line here. */
async function follow(call: CommandCall, stateDir: string, before: number): Promise<number> {
  let seen = before;
  while (!call.signal.aborted) {
    await pause(LOOK_AGAIN_MS, undefined, { signal: call.signal }).catch(() => undefined);
    const events = readHistory(stateDir);
    // After a rotation it is shorter: what remains has been shown, except for the last.
    const fresh = events.slice(events.length < seen ? -1 : seen);
    seen = events.length;
    const entries = fresh.map(fromHistory);
    print(
      call,
      entries.filter(one => isWanted(call, one)),
    );
  }
  return 0;
}

function print(call: CommandCall, entries: readonly LogEntry[]): void {
  const text = call.on('json') ? entries.map(one => `${JSON.stringify(one)}\n`).join('') : renderLog(entries);
  call.out(text);
}

function isWanted(call: CommandCall, { network, containerID, podName }: LogEntry): boolean {
  const [wanted, container] = [call.text('network'), call.text('container')];
  if (wanted !== undefined && network !== wanted) return false;
  return container === undefined || containerID?.startsWith(container) === true || podName === container;
}
