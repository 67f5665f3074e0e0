// How is a stored request shown on a terminal: when did each plugin run, and what did it add to the result?
import { derivedNameOf, shortId } from '../cni/attachment.ts';
import { attempt } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseResult, type Result } from '../cni/result.ts';
import { diffResults } from '../lab/diff.ts';
import { count, localTime, renderTable, renderTime } from '../lab/words.ts';
import type { FinishRecord, PluginRecord, RequestRecord, TransactionRecord } from './record.ts';

/** Length of the longest bar in characters, on a wide and on a narrow terminal. */
const [WIDEST, NARROWEST] = [40, 8];
/** Columns that notes need beside it. */
const NOTES = 34;

/** How many lines of a plugin's standard error are shown. */
const STDERR_LINES = 8;

/**
 * One row per plugin: a bar that starts when the plugin did, its time, and its changes to the result.
 * @param kernel whether each kernel transaction gets a row as well, below its plugin
 * @param width columns of the terminal, if there is one
 */
export function renderWaterfall(record: RequestRecord, kernel = false, width = Infinity): string {
  const rows = [
    ...record.plugins.map((plugin, at) => rowsOf(plugin, pluginLabel(record, plugin, at), kernel)),
    ...(record.finishes ?? []).map(finish => {
      const name = nameOf(record, 'removals', finish);
      return rowsOf(finish, { name, notes: ['deferred removals, done together'] }, kernel);
    }),
  ]
    .toSorted(([a], [b]) => (a?.startMs ?? 0) - (b?.startMs ?? 0))
    .flat();
  const nameWidth = Math.max(6, ...rows.map(({ name }) => name.length));
  const timeWidth = Math.max(4, ...rows.map(({ time }) => time.length));
  const room = width - (2 + nameWidth + 2 + 2 + timeWidth + 2 + NOTES);
  const barWidth = Math.max(NARROWEST, Math.min(WIDEST, room));
  const indent = ' '.repeat(2 + nameWidth + 2 + barWidth + 2);
  const scale = `0${renderTime(record.durationMs).padStart(barWidth - 1)}`;
  const header = `  ${'plugin'.padEnd(nameWidth)}  ${scale}  ${'time'.padStart(timeWidth)}  result`;
  const body = rows.flatMap(({ name, time, notes: [first = '', ...more], ...bar }) => [
    `  ${name.padEnd(nameWidth)}  ${drawBar(record, bar, barWidth)}  ${time.padStart(timeWidth)}  ${first}`,
    ...more.map(note => `${indent}${' '.repeat(timeWidth)}  ${note}`),
  ]);
  const table = rows.length ? ['', header, ...body] : ['', '  no plugin was called'];
  return [...heading(record), ...table, ...verdict(record)].map(line => `${line.trimEnd()}\n`).join('');
}

/** A table, oldest first. @param width columns of the terminal, if there is one: interface and network are left out if it is too narrow */
export function renderList(records: readonly RequestRecord[], width = Infinity): string {
  let rows = listRows(records);
  for (const left of ['IFNAME', 'NETWORK']) {
    const lines = renderTable(rows).split('\n');
    const at = rows[0]?.indexOf(left);
    if (lines.some(line => line.length > width)) rows = rows.map(row => row.filter((_, i) => i !== at));
  }
  return renderTable(rows, width);
}

const HEADER = ['ID', 'TIME', 'VERB', 'PLUGINS', 'NETWORK', 'CONTAINER', 'IFNAME', 'DURATION', 'CODE'];

function listRows(records: readonly RequestRecord[]): string[][] {
  const rows = records.map(record => {
    const { id, startedAt, verb, network, ifname, durationMs, code, plugins } = record;
    // A runtime calls each plugin by a request of its own.
    const called = plugins.length === 1 ? String(plugins[0]?.type) : count(plugins.length, 'plugin');
    const where = [network, nameOfContainer(record) || '-', ifname || '-'];
    return [id, localTime(startedAt), verb, called, ...where, renderTime(durationMs), String(code)];
  });
  return [HEADER, ...rows];
}

function nameOfContainer(record: RequestRecord): string {
  const { podNamespace, podName = derivedNameOf(record), containerId } = record;
  return podName ? [podNamespace, podName].filter(Boolean).join('/') : shortId(containerId);
}

function heading(record: RequestRecord): string[] {
  const { id, verb, network, containerId, ifname, startedAt, durationMs, warm } = record;
  const { podNamespace, podName, netns, queueMs = 0, lockMs = 0, traceId } = record;
  const who = [containerId && `container ${derivedNameOf(record) ?? shortId(containerId)}`, ifname]
    .filter(Boolean)
    .join(', ');
  const by = warm ? 'by the daemon' : 'by a command';
  const facts = [
    podName && `pod ${[podNamespace, podName].filter(Boolean).join('/')}`,
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
  readonly durationMs: number;
  readonly name: string;
  readonly block: '█' | '▒';
  readonly time: string;
  readonly notes: readonly string[];
}

type Timed = Pick<TransactionRecord, 'startMs' | 'durationMs'>;
type Words = Pick<Row, 'name' | 'notes'>;

/** A row, followed by the rows of its kernel transactions if requested; else with a note of their number and time. */
function rowsOf(part: PluginRecord | FinishRecord, { name, notes }: Words, kernel: boolean): Row[] {
  const { transactions = [] } = part;
  if (!kernel) return [rowOf(part, '█', { name, notes: [...notes, ...folded(transactions)] })];
  return [
    rowOf(part, '█', { name, notes }),
    ...transactions.map(({ family, what, error, ...one }) => {
      const words = error === undefined ? what : `${what}: ${error}`;
      return rowOf({ ...one, startMs: part.startMs + one.startMs }, '▒', {
        name: `  ${family}`,
        notes: [words],
      });
    }),
  ];
}

function rowOf({ startMs, durationMs }: Timed, block: Row['block'], words: Words): Row {
  const time = block === '█' ? renderTime(durationMs) : `${durationMs.toFixed(2)} ms`;
  return { startMs, durationMs, block, time, ...words };
}

/** As long as the row took, and as far to the right as it began, in the time of the request. */
function drawBar(
  record: RequestRecord,
  { startMs, durationMs, block }: Pick<Row, 'startMs' | 'durationMs' | 'block'>,
  width: number,
): string {
  const span = Math.max(record.durationMs, 0.001);
  const from = Math.min(width - 1, Math.floor((startMs / span) * width));
  const to = Math.min(width, Math.max(from + 1, Math.round(((startMs + durationMs) / span) * width)));
  return `${' '.repeat(from)}${block.repeat(to - from)}`.padEnd(width);
}

function pluginLabel(record: RequestRecord, plugin: PluginRecord, at: number): Words {
  const { code, message = '' } = plugin;
  const outcome = code === 0 ? [] : [`FAILED with code ${code}: ${message}`];
  return {
    name: nameOf(record, plugin.type, plugin),
    notes: [...outcome, ...differenceOf(record.plugins, at), ...saidBy(plugin)],
  };
}

function nameOf(
  record: RequestRecord,
  what: string,
  { verb, network }: Pick<PluginRecord, 'verb' | 'network'>,
): string {
  return `${verb === record.verb ? '' : `${verb} `}${what}${network === record.network ? '' : ` of ${network}`}`;
}

function folded(transactions: readonly TransactionRecord[]): string[] {
  if (transactions.length === 0) return [];
  const ms = transactions.reduce((sum, { durationMs }) => sum + durationMs, 0);
  return [`kernel: ${count(transactions.length, 'transaction')}, ${renderTime(ms)}`];
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

/** Undefined as well if it was masked, or the file was changed: the times are still useful. */
function read(result: JsonObject | undefined): Result | undefined {
  return isObject(result) ? attempt(() => parseResult(result, '0.1.0')) : undefined;
}

function saidBy({ stderr = '' }: PluginRecord): string[] {
  const lines = stderr.split('\n').filter(line => line.trim() !== '');
  return lines.slice(-STDERR_LINES).map(line => `stderr: ${line}`);
}

function verdict({ code, message = '', details }: RequestRecord): string[] {
  if (code === 0) return [];
  return ['', `  FAILED with code ${code}: ${message}`, ...(details === undefined ? [] : [`  ${details}`])];
}
