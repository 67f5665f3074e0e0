// How is a stored request shown on a terminal: when did each plugin run, and what did it add to the result?
import type { KernelTransaction } from '../chain/run/exec-plugin.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseResult, type Result, resultVersionOf } from '../cni/result.ts';
import { diffResults } from '../lab/result-diff.ts';
import { count, renderTime } from '../lab/words.ts';
import type { FinishRecord, PluginRecord, RequestRecord } from './record.ts';

/** Length of the longest bar, in characters. */
const WIDTH = 40;

/** How many lines of a plugin's standard error are shown. */
const STDERR_LINES = 8;

/**
 * One row per plugin: a bar that starts when the plugin did, its time, and its changes to the result.
 * @param kernel whether each kernel transaction gets a row as well, below its plugin
 */
export function renderWaterfall(record: RequestRecord, kernel = false): string {
  const rows = [
    ...record.links.map((plugin, at) => rowsOf(record, plugin, pluginLabel(record, plugin, at), kernel)),
    ...(record.finishes ?? []).map(finish => rowsOf(record, finish, finishWords(record, finish), kernel)),
  ]
    .toSorted(([a], [b]) => (a?.startMs ?? 0) - (b?.startMs ?? 0))
    .flat();
  const nameWidth = Math.max(6, ...rows.map(({ name }) => name.length));
  const timeWidth = Math.max(4, ...rows.map(({ time }) => time.length));
  const indent = ' '.repeat(2 + nameWidth + 2 + WIDTH + 2);
  const scale = `0${renderTime(record.durationMs).padStart(WIDTH - 1)}`;
  const header = `  ${'plugin'.padEnd(nameWidth)}  ${scale}  ${'time'.padStart(timeWidth)}  result`;
  const body = rows.flatMap(({ name, bar, time, notes: [first = '', ...more] }) => [
    `  ${name.padEnd(nameWidth)}  ${bar.padEnd(WIDTH)}  ${time.padStart(timeWidth)}  ${first}`,
    ...more.map(note => `${indent}${' '.repeat(timeWidth)}  ${note}`),
  ]);
  const table = rows.length ? ['', header, ...body] : ['', '  no plugin was called'];
  return [...heading(record), ...table, ...verdict(record)].map(line => `${line.trimEnd()}\n`).join('');
}

/** One line per record, oldest first. */
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
  readonly startMs: number;
  readonly name: string;
  readonly bar: string;
  readonly time: string;
  readonly notes: readonly string[];
}

/** An event with a start and a duration. */
type Timed = Pick<KernelTransaction, 'startMs' | 'durationMs'>;
type Words = Pick<Row, 'name' | 'notes'>;

/** A row, followed by the rows of its kernel transactions if requested; else with a note of their number and time. */
function rowsOf(
  record: RequestRecord,
  part: PluginRecord | FinishRecord,
  { name, notes }: Words,
  kernel: boolean,
): Row[] {
  const { transactions = [] } = part;
  if (!kernel) return [rowOf(record, part, '█', { name, notes: [...notes, ...folded(transactions)] })];
  return [
    rowOf(record, part, '█', { name, notes }),
    ...transactions.map(({ family, what, error, ...one }) => {
      const words = error === undefined ? what : `${what}: ${error}`;
      return rowOf(record, { ...one, startMs: part.startMs + one.startMs }, '▒', {
        name: `  ${family}`,
        notes: [words],
      });
    }),
  ];
}

function rowOf(record: RequestRecord, { startMs, durationMs }: Timed, block: string, words: Words): Row {
  const span = Math.max(record.durationMs, 0.001);
  const from = Math.min(WIDTH - 1, Math.floor((startMs / span) * WIDTH));
  const to = Math.min(WIDTH, Math.max(from + 1, Math.round(((startMs + durationMs) / span) * WIDTH)));
  return {
    startMs,
    bar: ' '.repeat(from) + block.repeat(to - from),
    time: block === '█' ? renderTime(durationMs) : `${durationMs.toFixed(2)} ms`,
    ...words,
  };
}

function pluginLabel(record: RequestRecord, plugin: PluginRecord, at: number): Words {
  return {
    name: nameOf(record, plugin.link, plugin),
    notes: [...outcomeOf(plugin), ...differenceOf(record.links, at), ...saidBy(plugin)],
  };
}

function finishWords(record: RequestRecord, finish: FinishRecord): Words {
  return { name: nameOf(record, 'removals', finish), notes: ['deferred removals, done together'] };
}

function nameOf(
  record: RequestRecord,
  what: string,
  { verb, network }: Pick<PluginRecord, 'verb' | 'network'>,
): string {
  return `${verb === record.verb ? '' : `${verb} `}${what}${network === record.network ? '' : ` of ${network}`}`;
}

function folded(transactions: readonly KernelTransaction[]): string[] {
  if (transactions.length === 0) return [];
  const ms = transactions.reduce((sum, { durationMs }) => sum + durationMs, 0);
  return [`kernel: ${count(transactions.length, 'transaction')}, ${renderTime(ms)}`];
}

function outcomeOf({ code, message = '' }: PluginRecord): string[] {
  return code === 0 ? [] : [`FAILED with code ${code}: ${message}`];
}

/** The changes compared with the previous plugin of the same network. */
function differenceOf(plugins: readonly PluginRecord[], at: number): string[] {
  const plugin = plugins[at];
  const after = read(plugin?.result);
  if (plugin === undefined || after === undefined) return [];
  const before = plugins
    .slice(0, at)
    .findLast(one => one.network === plugin.network && one.result !== undefined);
  return diffResults(read(before?.result), after);
}

function read(result: JsonObject | undefined): Result | undefined {
  if (!isObject(result)) return undefined;
  try {
    return parseResult(result, resultVersionOf(result, '0.1.0', 'result'), 'result');
  } catch {
    // It was masked, or the file was changed; the times are still useful.
    return undefined;
  }
}

function saidBy({ stderr = '' }: PluginRecord): string[] {
  const lines = stderr.split('\n').filter(line => line.trim() !== '');
  return lines.slice(-STDERR_LINES).map(line => `stderr: ${line}`);
}

function verdict({ code, message = '', details }: RequestRecord): string[] {
  if (code === 0) return [];
  return ['', `  FAILED with code ${code}: ${message}`, ...(details === undefined ? [] : [`  ${details}`])];
}

function shorten(containerId: string): string {
  return containerId.length > 20 ? `${containerId.slice(0, 12)}…` : containerId;
}
