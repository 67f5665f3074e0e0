// What does the report about a tried chain contain, and how is it rendered, with and without colours?
import type { AnswerOf } from '../cli/answers/kinds.ts';
import { COLOURS, count, oneLine, type Paint, painter, renderTime, type Style } from './words.ts';

type Trial = AnswerOf<'Trial'>;
type TriedVerb = Trial['verbs'][number];
/** One plugin's part in a command. */
export type PluginReport = TriedVerb['links'][number];
/** A failure, human-readable, with everything that helps to find its cause. */
export type Failure = NonNullable<TriedVerb['failure']>;

type Known<Key extends keyof Trial> = { readonly [K in Key]: NonNullable<Trial[K]> };

/** A section of the report, issued as soon as it is known; probes follow `probing`. */
export type Section =
  | ({ readonly kind: 'lab' } & Known<'network' | 'version' | 'links' | 'rootless' | 'durationMs'>)
  | ({ readonly kind: 'verb' } & TriedVerb)
  | { readonly kind: 'probing' }
  | ({ readonly kind: 'probe' } & Trial['probes'][number])
  | ({ readonly kind: 'left' } & Pick<Trial, 'left' | 'kept'>)
  | ({ readonly kind: 'verdict'; readonly failures: number } & Pick<Trial, 'ok' | 'durationMs'>);

/** True when a section reports a problem. */
export function isProblem(section: Section): boolean {
  if (section.kind === 'verb') return section.failure !== undefined;
  if (section.kind === 'probe') return section.outcome === 'failed';
  return section.kind === 'left' && section.left.length > 0;
}

/** The complete report as one JSON object. */
export function toJson(sections: readonly Section[]): Trial {
  const of = <K extends Section['kind']>(kind: K) =>
    sections.filter((section): section is Extract<Section, { kind: K }> => section.kind === kind);
  const bare = <T extends Section>({ kind: _, ...rest }: T) => rest;
  const verdict = of('verdict')[0];
  return {
    ok: verdict?.ok ?? false,
    ...of('lab').map(bare)[0],
    durationMs: verdict?.durationMs ?? 0,
    verbs: of('verb').map(bare),
    probes: of('probe').map(bare),
    left: of('left').flatMap(({ left }) => left),
    kept: of('left').flatMap(({ kept }) => kept),
  };
}

/**
 * One section as lines, each with a line end.
 * @param width columns of the terminal, if there is one: a table that is wider has changes below results, not beside them
 */
export function renderSection(section: Section, style: Style, width?: number): string {
  const paint = painter(style);
  const lines = {
    lab: renderLab,
    verb: renderVerb,
    probing: renderProbing,
    probe: renderProbe,
    left: renderLeft,
    verdict: renderVerdict,
  }[section.kind] as (section: Section, paint: Paint, width?: number) => string[];
  return lines(section, paint, width)
    .map(line => `${line.trimEnd()}\n`)
    .join('');
}

type Of<K extends Section['kind']> = Extract<Section, { kind: K }>;
function renderLab({ network, version, links, rootless, durationMs }: Of<'lab'>, paint: Paint): string[] {
  const who = rootless ? 'in a user namespace' : 'as root';
  const made = paint('dim', `a fake host, ${who}, created in ${renderTime(durationMs)}`);
  return [`${paint('bold', `network ${network}`)}: ${count(links, 'plugin')}, CNI ${version}; ${made}`];
}

function renderVerb(
  { verb, durationMs, links: plugins, failure, skipped }: Of<'verb'>,
  paint: Paint,
  width = Infinity,
): string[] {
  const heading = paint('bold', verb.padEnd(5));
  if (skipped !== undefined) return ['', `${heading} skipped: ${skipped}`];
  const quiet = plugins.every(
    plugin => !plugin.failure && changesOf(plugin, paint).length + plugin.result.length === 0,
  );
  const time = paint('dim', renderTime(durationMs));
  if (quiet && !failure) return ['', `${heading} ${count(plugins.length, 'plugin')} succeeded, ${time}`];
  const rows = plugins.map(plugin => rowOf(plugin, paint));
  const beside = renderTable([HEADER, ...rows], paint);
  const isWide = beside.some(line => visibleLength(line.trimEnd()) > width);
  const table = isWide ? renderTable(stack(rows), paint) : beside;
  return ['', `${heading} ${time}`, ...table, ...(failure ? renderFailure(failure, paint) : [])];
}

function renderFailure({ message, code, details, stderr }: Failure, paint: Paint): string[] {
  return [
    `  ${paint('red', 'FAILED')}  ${oneLine(message)}${code ? ` (code ${code})` : ''}`,
    ...(details === undefined ? [] : [`          ${details}`]),
    ...(stderr?.split('\n').map(line => paint('dim', `          ${line}`)) ?? []),
  ];
}

function renderProbing(_: Of<'probing'>, paint: Paint): string[] {
  return ['', paint('bold', 'CHECKS')];
}

/** One line: the outcome, what was tried, and what was seen. */
export function renderProbe({ what, outcome, seen }: Trial['probes'][number], paint: Paint): string[] {
  const word = {
    ok: paint('green', 'ok'),
    failed: paint('red', 'FAILED'),
    skipped: paint('yellow', 'skipped'),
  };
  const gap = ' '.repeat(9 - outcome.length);
  const told = outcome === 'ok' ? paint('dim', seen) : seen;
  return [`  ${word[outcome]}${gap}${what}${seen === '' ? '' : `: ${told}`}`];
}

function renderLeft({ left, kept }: Of<'left'>, paint: Paint): string[] {
  const nothing = left.length === 0 ? paint('green', 'nothing') : '';
  return [
    '',
    `${paint('bold', 'left behind')}: ${nothing}`,
    ...left.map(words => `  ${paint('red', words)}`),
    ...(kept.length ? [paint('dim', 'kept by the network for its next container:')] : []),
    ...kept.map(words => paint('dim', `  ${words}`)),
  ];
}

function renderVerdict({ ok, failures, durationMs }: Of<'verdict'>, paint: Paint): string[] {
  const time = paint('dim', `in ${renderTime(durationMs)}`);
  if (ok) return ['', `${paint('green', 'all checks passed')}, ${time}`];
  return ['', `${paint('red', `CHECKS FAILED: ${count(failures, 'problem')}`)}, ${time}`];
}

type Cell = readonly string[];

const HEADER: readonly Cell[] = [['plugin'], ['time'], ['result'], ['kernel and files']];

function rowOf(plugin: PluginReport, paint: Paint): readonly Cell[] {
  const name = plugin.failure ? paint('red', plugin.link) : plugin.link;
  return [
    [name],
    [renderTime(plugin.durationMs)],
    plugin.result.map(line => sign(line, paint)),
    changesOf(plugin, paint),
  ];
}

/** Results, and below them what changed. */
function stack(rows: readonly (readonly Cell[])[]): (readonly Cell[])[] {
  const hasResults = rows.some(([, , result = []]) => result.length > 0);
  const title = hasResults ? 'result, kernel and files' : 'kernel and files';
  return [
    [['plugin'], ['time'], [title]],
    ...rows.map(([name = [], time = [], result = [], changes = []]) => [name, time, [...result, ...changes]]),
  ];
}

function changesOf({ host, container, files }: PluginReport, paint: Paint): string[] {
  return [
    ...host.map(line => sign(line, paint)),
    ...container.map(line => `${sign(line, paint)}${paint('dim', ' (container)')}`),
    ...files.map(line => sign(line, paint)),
  ];
}

function sign(line: string, paint: Paint): string {
  if (line.startsWith('+ ')) return `${paint('green', '+')}${line.slice(1)}`;
  return line.startsWith('- ') ? `${paint('red', '-')}${line.slice(1)}` : line;
}

/** Columns are as wide as their widest line; empty columns are omitted. */
function renderTable(rows: readonly (readonly Cell[])[], paint: Paint): string[] {
  const body = rows.slice(1);
  const columns = [0, 1, 2, 3].filter(column => body.some(row => row[column]?.length));
  const widthOf = (column: number) =>
    Math.max(...rows.flatMap(row => (row[column] ?? []).map(line => visibleLength(line))));
  const widths = columns.map(widthOf);
  return rows.flatMap((row, at) => {
    const height = Math.max(...columns.map(column => row[column]?.length ?? 0));
    return Array.from({ length: height }, (_, y) => {
      const cells = columns.map((column, i) => pad(row[column]?.[y] ?? '', widths[i] ?? 0));
      const line = `  ${cells.join('  ')}`;
      return at === 0 ? paint('dim', line.trimEnd()) : line;
    });
  });
}

function pad(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - visibleLength(text)));
}

function visibleLength(text: string): number {
  return text.replace(COLOURS, '').length;
}
