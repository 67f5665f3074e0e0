// How is a comparison rendered, with every difference or so that it fits on a screen?
import type { AnswerOf } from '../answers/kinds.ts';
import { count, renderTime } from '../lab/words.ts';
import {
  type Crossing,
  type PluginReport,
  type ReportedDifference,
  renderVerdict,
  sortOut,
} from './report.ts';

const WIDEST = 100;
/** Maximum number of objects left behind that one crossing lists. */
const MOST_LEFT = 5;
/** Maximum number of differences that a summary shows, over all plugins. */
const MOST = 6;

type Report = AnswerOf<'Comparison'>;

/** The report as text: first plugins with differences, then those without, then the verdict. */
export function renderReport(report: Report, first: string, second: string): string {
  const { scenes, links: plugins, failing, crossings } = report;
  return [
    ...headOf(report, `: ${scenes.join(', ')}`, first, second),
    ...plugins.flatMap(one => {
      const { index, differences } = one;
      if (index < 0 && !differences.length) return [];
      const words = differences.length ? count(differences.length, 'difference') : 'the same';
      return ['', titleOf(one, words), ...differences.flatMap(renderWhole)];
    }),
    '',
    ...crossings.flatMap(renderCrossing),
    ...(crossings.length ? [''] : []),
    ...failing.map(({ index, link, message }) => {
      return `NOT COMPARED: ADD of ${index} ${link} fails with both sets: ${shorten(message)}`;
    }),
    renderVerdict(report),
    '',
  ].join('\n');
}

/** What matters of each plugin, whether one set can continue for the other, and the verdict. */
export function renderSummary(report: Report, first: string, second: string): string {
  const sorted = report.links.map(one => ({ one, ...sortOut(one) }));
  let room = MOST;
  const plugins = sorted.flatMap(({ one, matter, byDesign }) => {
    if (one.index < 0 && !matter.length && !byDesign) return [];
    const shown = matter.slice(0, room);
    room -= shown.length;
    const hidden = matter.length - shown.length;
    const words = [
      ...(matter.length ? [count(matter.length, 'difference')] : []),
      ...(byDesign ? [`${byDesign} by design`] : []),
    ];
    return [
      titleOf(one, words.join(', ') || 'the same'),
      ...shown.map(renderInOneLine),
      ...(hidden ? [`  ${hidden} more`] : []),
    ];
  });
  const isShort = sorted.every(({ matter, byDesign }) => !matter.length && !byDesign);
  return [
    ...headOf(report, '', first, second),
    ...plugins,
    ...report.crossings.map(crossing => {
      const [title = '', detail] = renderCrossing(crossing);
      return detail === undefined ? title : `${title} (${detail.trim().replace(/^(fails|left) +/, '')})`;
    }),
    ...(isShort ? [] : ['catena compare --all shows every difference']),
    renderVerdict(report),
    '',
  ].join('\n');
}

function headOf({ network, scenes }: Report, named: string, first: string, second: string): string[] {
  return [`network ${network}: ${count(scenes.length, 'scene')}${named}`, `  A  ${first}`, `  B  ${second}`];
}

/** The plugin, how much differs, and the times of both sets by command. */
function titleOf({ index, link, times }: PluginReport, words: string): string {
  const verbs = Object.entries(times).map(
    ([verb, { first, second }]) => `${verb} ${renderTime(first)} / ${renderTime(second)}`,
  );
  const name = index < 0 ? link : `${index} ${link}`;
  return `${name}: ${words}${verbs.length ? `; ${verbs.join(', ')}` : ''}`;
}

/** What one set did to what the other made: a line, then one for each failure and each thing that it left. */
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

function renderWhole(one: ReportedDifference): string[] {
  const { step, first = 'nothing', second = 'nothing' } = one;
  return [
    `  ${step}: ${subjectOf(one)} (${scenesOf(one)})`,
    `    A  ${shorten(first)}`,
    `    B  ${shorten(second)}`,
  ];
}

function renderInOneLine(one: ReportedDifference): string {
  const { step, first = 'nothing', second = 'nothing' } = one;
  return `  ${shorten(`${step}: ${subjectOf(one)}: ${first} | ${second}`)} (${scenesOf(one)})`;
}

function subjectOf({ where, what }: ReportedDifference): string {
  return [where, what].filter(Boolean).join(': ');
}

function scenesOf({ scene, alsoIn }: ReportedDifference): string {
  return alsoIn.length ? `${scene} and ${count(alsoIn.length, 'more scene')}` : scene;
}

/** One line of bounded length. */
function shorten(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > WIDEST ? `${line.slice(0, WIDEST)}…` : line;
}
