// How is a comparison rendered as text?
import { count, renderTime } from '../lab/words.ts';
import type { Crossing } from './crossings.ts';
import type { CompareReport, PluginReport, ReportedDifference } from './report.ts';

const WIDEST = 100;
/** Maximum number of objects left behind that one crossing lists. */
const MOST_LEFT = 5;

/** The report as text: first plugins with differences, then those without, then the verdict. */
export function renderReport(report: CompareReport, first: string, second: string): string {
  const { network, scenes, links: plugins, same, failing } = report;
  const total = plugins.reduce((sum, { differences }) => sum + differences.length, 0);
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
    ...(same ? ['SAME'] : total > 0 ? [`DIFFERENT: ${count(total, 'difference')}`] : []),
    '',
  ].join('\n');
}

function renderCrossing({ maker, verb, by, handedOver, untried, fails, left }: Crossing): string[] {
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
  const verbs = Object.entries(times).map(([verb, { first, second }]) => {
    return `${verb} ${renderTime(first)} / ${renderTime(second)}`;
  });
  const word = differences.length ? count(differences.length, 'difference') : 'the same';
  return [
    '',
    `${title}: ${word}${verbs.length ? `; ${verbs.join(', ')}` : ''}`,
    ...differences.flatMap(renderOne),
  ];
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

function shorten(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > WIDEST ? `${line.slice(0, WIDEST)}…` : line;
}
