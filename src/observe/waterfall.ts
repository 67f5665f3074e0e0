// How does a kept request look on a terminal: when did each link run, and what did it add to the result?
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseResult, type Result, resultVersionOf } from '../cni/result.ts';
import { diffResults } from '../lab/result-diff.ts';
import { renderTime } from '../lab/words.ts';
import type { LinkRecord, RequestRecord } from './record.ts';

/** Characters of the longest bar. */
const WIDTH = 40;

/** Lines of standard error that are shown of a link. */
const STDERR_LINES = 8;

/** One row per link: a bar that begins when it began, its time, and the difference it made to the result. */
export function renderWaterfall(record: RequestRecord): string {
  const rows = record.links.map((link, at) => rowOf(record, link, at));
  const nameWidth = Math.max(4, ...rows.map(({ name }) => name.length));
  const timeWidth = Math.max(4, ...rows.map(({ time }) => time.length));
  const indent = ' '.repeat(2 + nameWidth + 2 + WIDTH + 2);
  const scale = `0${renderTime(record.durationMs).padStart(WIDTH - 1)}`;
  const header = `  ${'link'.padEnd(nameWidth)}  ${scale}  ${'time'.padStart(timeWidth)}  result`;
  const body = rows.flatMap(({ name, bar, time, notes: [first = '', ...more] }) => [
    `  ${name.padEnd(nameWidth)}  ${bar.padEnd(WIDTH)}  ${time.padStart(timeWidth)}  ${first}`,
    ...more.map(note => `${indent}${' '.repeat(timeWidth)}  ${note}`),
  ]);
  const table = rows.length ? ['', header, ...body] : ['', '  no link was called'];
  return [...heading(record), ...table, ...verdict(record)].map(line => `${line.trimEnd()}\n`).join('');
}

/** One line per record, the oldest first. */
export function renderList(records: readonly RequestRecord[]): string {
  const header = ['ID', 'TIME', 'VERB', 'NETWORK', 'CONTAINER', 'IFNAME', 'DURATION', 'CODE'];
  const rows = records.map(({ id, startedAt, verb, network, containerId, ifname, durationMs, code }) => [
    id,
    new Date(startedAt).toISOString(),
    verb,
    network,
    shorten(containerId) || '-',
    ifname || '-',
    renderTime(durationMs),
    String(code),
  ]);
  const widths = header.map((_, column) =>
    Math.max(...[header, ...rows].map(row => row[column]?.length ?? 0)),
  );
  return [header, ...rows]
    .map(
      row =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}

function heading(record: RequestRecord): string[] {
  const { id, verb, network, containerId, ifname, startedAt, durationMs, warm } = record;
  const { podNamespace, podName, netns, queueMs = 0, lockMs = 0, traceId } = record;
  const who = [containerId && `container ${containerId}`, ifname].filter(Boolean).join(', ');
  const by = warm ? 'by the daemon' : 'by a command';
  const facts = [
    podName && `pod ${podNamespace ?? ''}/${podName}`,
    netns && `namespace ${netns}`,
    queueMs >= 1 && `waited ${renderTime(queueMs)} in the queue`,
    lockMs >= 1 && `waited ${renderTime(lockMs)} for its turn`,
    traceId && `trace ${traceId}`,
  ];
  return [
    `${id}  ${[`${verb} ${network}`, who].filter(Boolean).join('  ')}`,
    `  ${new Date(startedAt).toISOString()}, ${renderTime(durationMs)}, ${by}`,
    ...facts.filter(Boolean).map(fact => `  ${fact}`),
  ];
}

interface Row {
  readonly name: string;
  readonly bar: string;
  readonly time: string;
  readonly notes: readonly string[];
}

function rowOf(record: RequestRecord, link: LinkRecord, at: number): Row {
  const { startMs, durationMs } = link;
  const verb = link.verb === record.verb ? '' : `${link.verb} `;
  const network = link.network === record.network ? '' : ` of ${link.network}`;
  const span = Math.max(record.durationMs, 0.001);
  const from = Math.min(WIDTH - 1, Math.floor((startMs / span) * WIDTH));
  const to = Math.min(WIDTH, Math.max(from + 1, Math.round(((startMs + durationMs) / span) * WIDTH)));
  return {
    name: `${verb}${link.link}${network}`,
    bar: ' '.repeat(from) + '█'.repeat(to - from),
    time: renderTime(durationMs),
    notes: [...outcomeOf(link), ...differenceOf(record.links, at), ...saidBy(link)],
  };
}

function outcomeOf({ code, message = '' }: LinkRecord): string[] {
  return code === 0 ? [] : [`FAILED with code ${code}: ${message}`];
}

/** Against the link before it of the same network. */
function differenceOf(links: readonly LinkRecord[], at: number): string[] {
  const link = links[at];
  const after = read(link?.result);
  if (link === undefined || after === undefined) return [];
  const before = links.slice(0, at).findLast(one => one.network === link.network && one.result !== undefined);
  return diffResults(read(before?.result), after);
}

function read(result: JsonObject | undefined): Result | undefined {
  if (!isObject(result)) return undefined;
  try {
    return parseResult(result, resultVersionOf(result, '0.1.0', 'result'), 'result');
  } catch {
    // It was masked, or somebody changed the file: the times still tell something.
    return undefined;
  }
}

function saidBy({ stderr = '' }: LinkRecord): string[] {
  const lines = stderr.split('\n').filter(line => line.trim() !== '');
  return lines.slice(-STDERR_LINES).map(line => `said: ${line}`);
}

function verdict({ code, message = '', details }: RequestRecord): string[] {
  if (code === 0) return [];
  return ['', `  FAILED with code ${code}: ${message}`, ...(details === undefined ? [] : [`  ${details}`])];
}

function shorten(containerId: string): string {
  return containerId.length > 20 ? `${containerId.slice(0, 12)}…` : containerId;
}
