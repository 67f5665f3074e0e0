// What does the report about a tried chain contain, and how is it rendered, with and without colours?
import type { AnswerOf } from '../cli/answers/kinds.ts';
import {
  COLOURS,
  count,
  oneLine,
  type Paint,
  painter,
  renderTable,
  renderTime,
  type Style,
} from './words.ts';

type Trial = AnswerOf<'Trial'>;
type TriedVerb = Trial['verbs'][number];
/** One plugin's part in a command. */
export type PluginReport = TriedVerb['plugins'][number];
/** A failure, human-readable, with everything that helps to find its cause. */
export type Failure = NonNullable<TriedVerb['failure']>;

type Known<Key extends keyof Trial> = { readonly [K in Key]: NonNullable<Trial[K]> };

/** A section of the report, issued as soon as it is known; probes follow `probing`. */
export type Section =
  | ({ readonly kind: 'lab' } & Known<'network' | 'version' | 'plugins' | 'rootless' | 'durationMs'>)
  | ({ readonly kind: 'verb' } & TriedVerb)
  | { readonly kind: 'probing' }
  | ({ readonly kind: 'probe' } & Trial['probes'][number])
  | ({ readonly kind: 'left' } & Pick<Trial, 'left' | 'kept'>)
  | ({ readonly kind: 'verdict'; readonly failures: number } & Pick<Trial, 'ok' | 'durationMs'>);

export function isProblem(section: Section): boolean {
  if (section.kind === 'verb') return section.failure !== undefined;
  if (section.kind === 'probe') return section.outcome === 'failed';
  return section.kind === 'left' && section.left.length > 0;
}

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
    probing: (_: unknown, paint: Paint) => ['', paint('bold', 'CHECKS')],
    probe: renderProbe,
    left: renderLeft,
    verdict: renderVerdict,
  }[section.kind] as (section: Section, paint: Paint, width?: number) => string[];
  return lines(section, paint, width)
    .map(line => `${line.trimEnd()}\n`)
    .join('');
}

type Of<K extends Section['kind']> = Extract<Section, { kind: K }>;
function renderLab({ network, version, plugins, rootless, durationMs }: Of<'lab'>, paint: Paint): string[] {
  const who = rootless ? 'in a user namespace' : 'as root';
  const made = paint('dim', `a fake host, ${who}, created in ${renderTime(durationMs)}`);
  return [`${paint('bold', `network ${network}`)}: ${count(plugins, 'plugin')}, CNI ${version}; ${made}`];
}

function renderVerb(
  { verb, durationMs, plugins, failure, skipped }: Of<'verb'>,
  paint: Paint,
  width = Infinity,
): string[] {
  const heading = paint('bold', verb.padEnd(5));
  if (skipped !== undefined) return ['', `${heading} skipped: ${skipped}`];
  const quiet = plugins.every(one => !one.failure && changesOf(one).length + one.result.length === 0);
  const time = paint('dim', renderTime(durationMs));
  if (quiet && !failure) return ['', `${heading} ${count(plugins.length, 'plugin')} succeeded, ${time}`];
  const table = plugins.length ? tableOf(plugins, paint, width) : [];
  return ['', `${heading} ${time}`, ...table, ...(failure ? renderFailure(failure, paint) : [])];
}

function renderFailure({ message, code, details, stderr }: Failure, paint: Paint): string[] {
  return [
    `  ${paint('red', 'FAILED')}  ${oneLine(message)}${code ? ` (code ${code})` : ''}`,
    ...(details === undefined ? [] : [`          ${details}`]),
    ...(stderr?.split('\n').map(line => paint('dim', `          ${line}`)) ?? []),
  ];
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

/** A row for each plugin, with its changes beside its result, or below it where the terminal is too narrow. */
function tableOf(plugins: readonly PluginReport[], paint: Paint, width: number): string[] {
  const results = plugins.map(({ result }) => result.join('\n'));
  const changes = plugins.map(one => changesOf(one).join('\n'));
  const title = 'kernel and files';
  const two = [
    ['result', ...results],
    [title, ...changes],
  ];
  const beside = draw(plugins, two, paint);
  if (beside.every(line => line.replace(COLOURS, '').length <= width)) return beside;
  const both = plugins.map(one => [...one.result, ...changesOf(one)].join('\n'));
  return draw(plugins, [[results.some(Boolean) ? `result, ${title}` : title, ...both]], paint);
}

/** @param more columns beside name and time, each with its title; one without any text is left out */
function draw(plugins: readonly PluginReport[], more: readonly string[][], paint: Paint): string[] {
  const names = ['plugin', ...plugins.map(({ type }) => type)];
  const times = ['time', ...plugins.map(({ durationMs }) => renderTime(durationMs))];
  const columns = [names, times, ...more.filter(([, ...texts]) => texts.some(Boolean))];
  const rows = names.map((_, at) => columns.map(column => column[at] ?? ''));
  const table = renderTable(rows, Infinity, (part, row, column) => {
    if (row === 0) return paint('dim', part);
    if (column === 0) return plugins[row - 1]?.failure ? paint('red', part) : part;
    return part
      .replace(/^[+-](?= )/, sign => paint(sign === '+' ? 'green' : 'red', sign))
      .replace(/ \(container\)$/, where => paint('dim', where));
  });
  return table.split('\n').flatMap(line => (line === '' ? [] : [`  ${line}`]));
}

function changesOf({ host, container, files }: PluginReport): string[] {
  return [...host, ...container.map(line => `${line} (container)`), ...files];
}
