// How is a comparison rendered so that it fits on a screen?
import { count } from '../lab/words.ts';
import type { Crossing } from './crossings.ts';
import { renderCrossing, renderTimes, shorten } from './render.ts';
import type { CompareReport, PluginReport, ReportedDifference } from './report.ts';
import { renderVerdict, sortOut } from './verdict.ts';

/** Maximum number of differences that are shown, over all plugins. */
const MOST = 6;

/** What matters of each plugin, whether one set can continue for the other, and the verdict. */
export function renderSummary(report: CompareReport, first: string, second: string): string {
  const { network, scenes, links, crossings } = report;
  const sorted = links.map(one => ({ one, ...sortOut(one) }));
  let room = MOST;
  const plugins = sorted.flatMap(({ one, matter, byDesign }) => {
    if (one.index < 0 && !matter.length && !byDesign) return [];
    const shown = matter.slice(0, room);
    room -= shown.length;
    const hidden = matter.length - shown.length;
    return [
      renderPlugin(one, matter.length, byDesign),
      ...shown.map(renderOne),
      ...(hidden ? [`  ${hidden} more`] : []),
    ];
  });
  const isShort = sorted.every(({ matter, byDesign }) => !matter.length && !byDesign);
  return [
    `network ${network}: ${count(scenes.length, 'scene')}`,
    `  A  ${first}`,
    `  B  ${second}`,
    ...plugins,
    ...crossings.map(renderInOneLine),
    ...(isShort ? [] : ['catena compare --all shows every difference']),
    renderVerdict(report),
    '',
  ].join('\n');
}

function renderInOneLine(crossing: Crossing): string {
  const [title = '', detail] = renderCrossing(crossing);
  return detail === undefined ? title : `${title} (${detail.trim().replace(/^(fails|left) +/, '')})`;
}

function renderPlugin({ index, link, times }: PluginReport, matter: number, byDesign: number): string {
  const title = index < 0 ? link : `${index} ${link}`;
  const words = [matter ? count(matter, 'difference') : '', byDesign ? `${byDesign} by design` : ''].filter(
    Boolean,
  );
  const verbs = renderTimes(times);
  return `${title}: ${words.join(', ') || 'the same'}${verbs ? `; ${verbs}` : ''}`;
}

function renderOne({ step, where, what, first, second, alsoIn, scene }: ReportedDifference): string {
  const subject = [where, what].filter(Boolean).join(': ');
  const more = alsoIn.length ? ` and ${count(alsoIn.length, 'more scene')}` : '';
  return `  ${shorten(`${step}: ${subject}: ${first ?? 'nothing'} | ${second ?? 'nothing'}`)} (${scene}${more})`;
}
