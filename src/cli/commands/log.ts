// What does `catena log` do?
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { decodingFailure } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { listLeases, parseOwner, readLease } from '../../ipam/lease-files.ts';
import { count, localTime, oneLine, type Paint, painter, type Style } from '../../lab/words.ts';
import type { NodeModel } from '../../node/model.ts';
import { titleOf, withoutElements } from '../../node/words.ts';
import { type HistoryEvent, readHistory } from '../../observe/history.ts';
import { findTrace, listTraces, toRequest } from '../../observe/watcher.ts';
import { renderList as renderRequests, renderWaterfall } from '../../observe/waterfall.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, refuseOptions, UsageError } from '../command.ts';
import { podIn } from '../log/events.ts';
import { readNodeFor } from '../node/read.ts';
import { isData } from '../output/format.ts';
import { printAnswer, printList, printOne } from '../output/print.ts';
import { runtimeOf, traceDirFor } from '../target.ts';
import { styleOf, widthOf } from '../terminal/lines.ts';

/**
 * The moment that a text means: `90s`, `15min`, `2h`, `3d` and `1w` ago; `today` and `yesterday` at midnight, local time; or an ISO date or time.
 * @returns Unix time in milliseconds
 * @throws UsageError
 */
export function parseMoment(text: string, now = Date.now()): number {
  const [, amount = '', unit = ''] = /^(\d+) ?(s|m|min|h|d|w)( ago)?$/.exec(text.trim()) ?? [];
  const size = UNITS[unit];
  // A date cannot be of any year.
  if (size !== undefined) return Math.max(0, now - Number(amount) * size);
  const midnight = new Date(now);
  midnight.setHours(0, 0, 0, 0);
  if (text === 'today') return midnight.getTime();
  if (text === 'yesterday') return midnight.setDate(midnight.getDate() - 1);
  const [date, time] = /^\d{4}-\d\d-\d\d(.+)?$/.exec(text) ?? [];
  const moment = date === undefined ? Number.NaN : Date.parse(time === undefined ? `${date}T00:00` : date);
  if (!Number.isNaN(moment)) return moment;
  throw new UsageError(
    `Cannot read time "${text}": expected such as 15min, 2h, 3d, today, yesterday, 2026-01-31 or 2026-01-31T08:00Z`,
  );
}

const HOUR = 3_600_000;
const UNITS: Readonly<Record<string, number>> = {
  ...{ s: 1_000, m: 60_000, min: 60_000 },
  ...{ h: HOUR, d: 24 * HOUR, w: 7 * 24 * HOUR },
};

/** Milliseconds between two looks of `--follow`. */
const LOOK_AGAIN_MS = 500;

/** Shows what changed on this node, by whom and when. */
export async function run(call: CommandCall): Promise<number> {
  if (call.positionals.length || ['requests', 'kernel'].some(one => call.on(one))) return showRequests(call);
  const since = parseMoment(call.text('since') ?? '1d');
  const { stateDir = '' } = runtimeOf(call);
  const node = await readNodeFor(call);
  const history = readHistory(stateDir);
  const entries = readTimeline(node, history);
  const shown = entries.filter(one => Date.parse(one.time) >= since && isWanted(call, one));
  if (call.on('follow')) {
    await print(call, shown);
    return follow(call, stateDir, history.at(-1));
  }
  const nothing = `nothing is on record since ${new Date(since).toISOString()}\n`;
  await printList(call, 'LogEntryList', shown, {
    text: () => renderLog(shown, styleOf(call)) || nothing,
    wide: () => renderLog(shown, styleOf(call), true) || nothing,
    names: () => namesIn(shown),
  });
  return 0;
}

/** Prints what the history gets; each event is an answer of its own. */
async function follow(
  call: CommandCall,
  stateDir: string,
  before: HistoryEvent | undefined,
): Promise<number> {
  let last = before;
  while (!call.signal.aborted && !call.isUnread) {
    await pause(LOOK_AGAIN_MS, undefined, { signal: call.signal }).catch(() => undefined);
    const fresh = eventsAfter(last, readHistory(stateDir));
    last = fresh.at(-1) ?? last;
    const entries = fresh.map(fromHistory).filter(one => isWanted(call, one));
    await print(call, entries);
  }
  return 0;
}

/** What follows an event that was shown; it, and any number before it, may have gone with a rotation, or be looked at during one. */
export function eventsAfter(
  shown: HistoryEvent | undefined,
  events: readonly HistoryEvent[],
): readonly HistoryEvent[] {
  if (shown === undefined) return events;
  const text = JSON.stringify(shown);
  const at = events.findLastIndex(one => one.time === shown.time && JSON.stringify(one) === text);
  return at < 0 ? events.filter(({ time }) => time > shown.time) : events.slice(at + 1);
}

async function print(call: CommandCall, entries: readonly LogEntry[]): Promise<void> {
  if (isData(call)) for (const one of entries) await printOne(call, 'LogEntry', one);
  else if (call.format === 'name') call.out([...namesIn(entries), ''].join('\n'));
  else call.out(renderLog(entries, styleOf(call), call.format === 'wide'));
}

/** The containers concerned, each once. */
function namesIn(entries: readonly LogEntry[]): string[] {
  return [...new Set(entries.map(nameIn))].filter(Boolean);
}

function isWanted(call: CommandCall, entry: Concerned): boolean {
  const [network, container] = [call.text('network'), call.text('container')];
  if (network !== undefined && entry.network !== network) return false;
  return container === undefined || isOf(entry, container);
}

/** Whether an entry is about a container: by the beginning of its id, or by a name, with its namespace or without. */
export function isOf(entry: Concerned, container: string): boolean {
  return (
    entry.containerId?.startsWith(container) === true || [entry.podName, nameIn(entry)].includes(container)
  );
}

/** One line for each entry, in local time. @param wide with whole ids, of the container and of the trace */
export function renderLog(entries: readonly LogEntry[], style: Style, wide = false): string {
  const paint = painter(style);
  return entries.map(one => renderEntry(one, wide, paint)).join('');
}

/** What people call the container: its pod, its name, or the beginning of its id. */
function nameIn({ containerId = '', podNamespace, podName }: Concerned): string {
  return titleOf({ containerId, podNamespace, podName });
}

function renderEntry(entry: LogEntry, wide: boolean, paint: Paint): string {
  const { time, what, network, containerId, ifname, by, code, message, source, trace } = entry;
  const id = wide && containerId !== undefined ? [containerId] : [];
  const who = [...new Set([nameIn(entry), ...id])].join(' ');
  const place = [who, ifname, network && `on ${network}`].filter(Boolean).join(' ');
  const failure = code === 0 ? '' : ` ${paint('red', `failed (${code})`)}`;
  // Of what CHECK could not confirm before a repair, not what it found instead.
  const brief = message && withoutElements(message).replace(/Cannot confirm (.+?): [^;]*/g, '$1');
  const said = wide ? message : brief;
  const words = said === undefined ? '' : place === '' ? said : `: ${said}`;
  const origin = [by, source, ...(wide && trace !== undefined ? [`trace ${trace}`] : [])].join('; ');
  return `${oneLine(`${localTime(time)}  ${what.padEnd(7)}  ${place}${failure}${words}  [${origin}]`)}\n`;
}

type LogEntry = AnswerOf<'LogEntry'>;

/** What an entry or a request is about. */
type Concerned = Pick<LogEntry, 'network' | 'containerId' | 'podNamespace' | 'podName'>;

/** Two reports of one operation differ by its duration, at most by that of the slowest plugin. */
const SAME_MS = 60_000;

/**
 * Everything on this node that has a time, oldest first. The history comes first: what another source says of the same operation is left
 * out.
 */
export function readTimeline(node: NodeModel, history: readonly HistoryEvent[]): LogEntry[] {
  const entries = byChain(history.map(fromHistory));
  for (const one of [...fromRecords(node), ...fromLeases(node)]) {
    if (!entries.some(other => isSame(one, other))) entries.push(one);
  }
  return withNames(entries, node).sort((a, b) => Date.parse(a.time) - Date.parse(b.time));
}

/** A repair knows the id of a container only; an attachment, or another entry, its name. */
function withNames(entries: readonly LogEntry[], { attachments }: NodeModel): LogEntry[] {
  const named = [...entries, ...attachments.map(one => ({ ...one, ...podIn(one) }))];
  const names = new Map<string, Pick<LogEntry, 'podNamespace' | 'podName'>>();
  for (const { containerId, podNamespace, podName } of named)
    if (containerId !== undefined && podName !== undefined)
      names.set(containerId, defined({ podName, podNamespace }));
  return entries.map(one => ({ ...names.get(one.containerId ?? ''), ...one }));
}

function fromHistory({ verb, plugin, by, ...event }: HistoryEvent): LogEntry {
  const who = plugin === undefined ? by : `${by}, ${plugin}`;
  return { ...event, what: verb, by: who, source: 'history' };
}

/** An attachment that exists was added, by one runtime or another. */
function fromRecords({ attachments }: NodeModel): LogEntry[] {
  return attachments.flatMap((one): LogEntry[] => {
    const { network, containerId, ifname, since: time, origin } = one;
    if (time === undefined) return [];
    const source = origin.evidence.startsWith('record') ? 'record' : 'cached result';
    return [{ time, what: 'ADD', network, containerId, ifname, by: origin.runner, code: 0, source }];
  });
}

function fromLeases({ networks }: NodeModel): LogEntry[] {
  return networks.flatMap(({ name, leaseDirs }) =>
    leaseDirs.filter(existsSync).flatMap(dir =>
      listLeases(dir).flatMap((address): LogEntry[] => {
        const owner = parseOwner(readLease(dir, address) ?? '');
        const written = statSync(join(dir, address), { throwIfNoEntry: false });
        if (owner === undefined || written === undefined) return [];
        const time = written.mtime.toISOString();
        const whose = { network: name, containerId: owner.containerId, ...defined({ ifname: owner.ifname }) };
        const how = { by: 'unknown', code: 0, message: `${address} was leased`, source: 'lease' } as const;
        return [{ time, what: 'LEASE', ...whose, ...how }];
      }),
    ),
  );
}

/** Calls of one chain follow each other within this time. */
const CHAIN_MS = 30_000;

/** A runtime calls the plugins of a chain one by one: they are one operation, with the outcome of the first that failed. */
function byChain(entries: readonly LogEntry[]): LogEntry[] {
  const open = new Map<string, LogEntry>();
  const joined: LogEntry[] = [];
  for (const one of entries) {
    const { by, what, network, containerId, ifname, time } = one;
    const [who = '', plugin] = by.split(', ');
    const key = [what, network, containerId, ifname].join('\n');
    const before = plugin === undefined ? undefined : open.get(key);
    const plugins = before?.by.split(', ').slice(1) ?? [];
    const isNext =
      before && plugin && !plugins.includes(plugin) && Date.parse(time) - Date.parse(before.time) < CHAIN_MS;
    if (!isNext) {
      if (plugin !== undefined) open.set(key, one);
      joined.push(one);
      continue;
    }
    const failed = [before, one].find(({ code }) => code !== 0);
    const whole = { ...one, ...failed, time, by: [who, ...plugins, plugin].join(', ') };
    joined[joined.indexOf(before)] = whole;
    open.set(key, whole);
  }
  return joined;
}

/** Whether both are about one ADD: a lease and a record are, too. */
function isSame(one: LogEntry, other: LogEntry): boolean {
  return (
    other.what === 'ADD' &&
    one.network === other.network &&
    one.containerId === other.containerId &&
    (one.ifname === undefined || one.ifname === other.ifname) &&
    Math.abs(Date.parse(one.time) - Date.parse(other.time)) < SAME_MS
  );
}

const NO_REQUESTS = 'no request was traced: the daemon keeps traces, and commands do with --trace\n';

/** Lists the stored traces, or draws one. */
async function showRequests(call: CommandCall): Promise<number> {
  const [id] = call.positionals;
  if (id === undefined) refuseOptions(call, 'without an id', 'kernel');
  else refuseOptions(call, `with the id "${id}"`, 'since', 'network', 'container', 'follow');
  const dir = traceDirFor(call);
  if (id !== undefined) {
    const record = findTrace(dir, id);
    await printAnswer(call, 'Request', toRequest(record), {
      text: () => renderWaterfall(record, call.on('kernel'), widthOf(call)),
      wide: () => renderWaterfall(record, true),
      names: () => [record.id],
    });
    return 0;
  }
  const { records: all, damaged } = listTraces(dir);
  const since = call.text('since');
  const begin = since === undefined ? 0 : parseMoment(since);
  const records = all.filter(one => one.startedAt >= begin && isWanted(call, one));
  const nothing = all.length ? `none of ${count(all.length, 'request')} matches\n` : NO_REQUESTS;
  await printList(call, 'RequestList', records.map(toRequest), {
    text: () => (records.length ? renderRequests(records, widthOf(call)) : nothing),
    names: () => records.map(({ id: one }) => one),
  });
  for (const file of damaged) call.warn(decodingFailure(`Cannot read trace "${file}"`));
  return 0;
}
