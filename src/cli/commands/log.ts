// What does `catena log` do?
import { setTimeout as pause } from 'node:timers/promises';
import { readHistory } from '../../observe/history.ts';
import type { CommandCall } from '../command.ts';
import { nameIn, renderLog } from '../log/render.ts';
import { fromHistory, type LogEntry, readTimeline } from '../log/timeline.ts';
import { readNodeFor } from '../node/read.ts';
import { parseMoment } from '../node/times.ts';
import { printOne } from '../output/data.ts';
import { isData } from '../output/format.ts';
import { printAnswer } from '../output/print.ts';
import { runtimeOf } from '../target.ts';
import { styleOf } from '../terminal/colour.ts';

/** Milliseconds between two looks of `--follow`. */
const LOOK_AGAIN_MS = 500;

/** Shows what changed on this node, by whom and when. */
export async function run(call: CommandCall): Promise<number> {
  const since = parseMoment(call.text('since') ?? '1d');
  const { stateDir = '' } = runtimeOf(call);
  const before = readHistory(stateDir).length;
  const node = await readNodeFor(call);
  const entries = readTimeline({ node, stateDir });
  const shown = entries.filter(one => Date.parse(one.time) >= since && isWanted(call, one));
  if (call.on('follow')) {
    await print(call, shown);
    return follow(call, stateDir, before);
  }
  const nothing = `nothing is on record since ${new Date(since).toISOString()}\n`;
  await printAnswer(
    call,
    'LogEntryList',
    { items: shown },
    {
      text: () => renderLog(shown, styleOf(call)) || nothing,
      wide: () => renderLog(shown, styleOf(call), true) || nothing,
      names: () => namesIn(shown),
    },
  );
  return 0;
}

/** Prints what the history gets; each event is an answer of its own. */
async function follow(call: CommandCall, stateDir: string, before: number): Promise<number> {
  let seen = before;
  while (!call.signal.aborted) {
    await pause(LOOK_AGAIN_MS, undefined, { signal: call.signal }).catch(() => undefined);
    const events = readHistory(stateDir);
    // After a rotation it is shorter: what remains has been shown, except for the last.
    const fresh = events.slice(events.length < seen ? -1 : seen);
    seen = events.length;
    const entries = fresh.map(fromHistory);
    await print(
      call,
      entries.filter(one => isWanted(call, one)),
    );
  }
  return 0;
}

async function print(call: CommandCall, entries: readonly LogEntry[]): Promise<void> {
  if (isData(call)) for (const one of entries) await printOne(call, 'LogEntry', one);
  else if (call.format === 'name')
    call.out(
      namesIn(entries)
        .map(name => `${name}\n`)
        .join(''),
    );
  else call.out(renderLog(entries, styleOf(call), call.format === 'wide'));
}

/** The containers concerned, each once. */
function namesIn(entries: readonly LogEntry[]): string[] {
  return [...new Set(entries.map(nameIn))].filter(Boolean);
}

function isWanted(call: CommandCall, { network, containerId, podName }: LogEntry): boolean {
  const [wanted, container] = [call.text('network'), call.text('container')];
  if (wanted !== undefined && network !== wanted) return false;
  return container === undefined || containerId?.startsWith(container) === true || podName === container;
}
