// How is a comparison rendered with every difference?
import { count, renderTime } from '../lab/words.ts';
import type { Crossing } from './crossings.ts';
import type { CompareReport, PluginReport, ReportedDifference } from './report.ts';
import { renderVerdict } from './verdict.ts';

const WIDEST = 100;
/** Maximum number of objects left behind that one crossing lists. */
const MOST_LEFT = 5;

/** The report as text: first plugins with differences, then those without, then the verdict. */
export function renderReport(report: CompareReport, first: string, second: string): string {
  const { network, scenes, links: plugins, failing } = report;
  const unseen = failing.map(({ index, link, message }) => {
    return `NOT COMPARED: ADD of ${index} ${link} fails with both sets: ${shorten(message)}`;
  });
  return [
    `network ${network}: ${count(scenes.length, 'scene')}: ${scenes.join(', ')}`,
    `  A  ${first}`,
    `  B  ${second}`,
    ...plugins.flatMap(renderPlugin),
    '',
    ...report.crossings.flatMap(renderCrossing),
    ...(report.crossings.length ? [''] : []),
    ...unseen,
    renderVerdict(report),
    '',
  ].join('\n');
}

/** What one set did to what the other made: a line, then one for each failure and each thing that it left. */
export function renderCrossing({ maker, verb, by, handedOver, untried, fails, left }: Crossing): string[] {
  const title = `ADD by ${maker}, ${handedOver ? 'handed over, ' : ''}${verb} by ${by}`;
  if (untried !== undefined) return [`${title}: not tried: ${shorten(untried)}`];
  if (!fails.length && !left.length)
    return [`${title}: works${verb === 'DEL' ? ', leaves nothing behind' : ''}`];
  const shown = left.slice(0, MOST_LEFT).map(what => `    left   ${shorten(what)}`);
  const more = left.length > MOST_LEFT ? [`    left   ${left.length - MOST_LEFT} more`] : [];
  const words = [fails.length ? 'fails' : '', left.length ? `leaves ${count(left.length, 'thing')}` : ''];
  return [
    `${title}: ${words.filter(Boolean).join(', ')}`,
    ...fails.map(what => `    fails  ${shorten(what)}`),
    ...shown,
    ...more,
  ];
}

function renderPlugin({ index, link, differences, times }: PluginReport): string[] {
  const title = index < 0 ? link : `${index} ${link}`;
  if (index < 0 && !differences.length) return [];
  const verbs = renderTimes(times);
  const word = differences.length ? count(differences.length, 'difference') : 'the same';
  return ['', `${title}: ${word}${verbs ? `; ${verbs}` : ''}`, ...differences.flatMap(renderOne)];
}

/** Times of both sets by command; empty if there are none. */
export function renderTimes(times: PluginReport['times']): string {
  const verbs = Object.entries(times).map(
    ([verb, { first, second }]) => `${verb} ${renderTime(first)} / ${renderTime(second)}`,
  );
  return verbs.join(', ');
}

function renderOne({ scene, step, where, what, first, second, alsoIn }: ReportedDifference): string[] {
  const subject = [where, what].filter(Boolean).join(': ');
  const more = alsoIn.length ? ` and ${count(alsoIn.length, 'more scene')}` : '';
  return [
    `  ${step}: ${subject} (${scene}${more})`,
    `    A  ${shorten(first ?? 'nothing')}`,
    `    B  ${shorten(second ?? 'nothing')}`,
  ];
}

/** One line of bounded length. */
export function shorten(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > WIDEST ? `${line.slice(0, WIDEST)}…` : line;
}
