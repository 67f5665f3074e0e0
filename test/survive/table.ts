// How are the figures of a run shown?

import { describePoint } from './points.ts';
import type { SweepPlan, SweepReport } from './sweep.ts';
import type { Outcome } from './trial.ts';

/** Columns of the table of faults, and which points count in them. */
const COLUMNS = [
  ['kernel fails', (group: string, isKill: boolean) => group === 'kernel' && !isKill],
  ['kernel killed', (group: string, isKill: boolean) => group === 'kernel' && isKill],
  ['file fails', (group: string, isKill: boolean) => group === 'file' && !isKill],
  ['file killed', (group: string, isKill: boolean) => group === 'file' && isKill],
  ['boundary killed', (group: string) => group === 'boundary'],
] as const;

/** A human-readable title of a sweep. */
export function titleOf({ verb, where }: Pick<SweepPlan, 'verb' | 'where'>): string {
  const places = { busy: 'with a neighbour', alone: 'alone', daemon: 'by the daemon' };
  return `${verb.toUpperCase()}, ${where in places ? places[where as keyof typeof places] : where}`;
}

/** Points tried, by verb and kind; faults that did not happen are listed below. */
export function renderFaults(reports: readonly SweepReport[]): string {
  const header = row('', [...COLUMNS.map(([title]) => title), 'tried', 'of', 'seconds']);
  const rows = reports.map(report => {
    const { outcomes, points, seconds } = report;
    return row(titleOf(report), [...countAll(outcomes), String(points), seconds.toFixed(0)]);
  });
  const all = reports.flatMap(({ outcomes }) => outcomes);
  const missed = all.filter(({ happened }) => !happened);
  const points = reports.reduce((sum, report) => sum + report.points, 0);
  const seconds = reports.reduce((sum, report) => sum + report.seconds, 0);
  const total = row('all', [...countAll(all), String(points), seconds.toFixed(0)]);
  const note = missed.map(({ point }) => `not reached again: ${describePoint(point)}`);
  return [header, ...rows, total, ...note, ''].join('\n');
}

function countAll(outcomes: readonly Outcome[]): string[] {
  const tried = outcomes.filter(({ happened }) => happened);
  const counts = COLUMNS.map(([, counts]) => {
    return tried.filter(({ point }) => counts(point.group, point.strike !== 'fails')).length;
  });
  return [...counts, tried.length].map(String);
}

function row(title: string, cells: readonly string[]): string {
  return `| ${title.padEnd(21)} |${cells.map(cell => ` ${cell.padStart(15)} |`).join('')}`;
}
