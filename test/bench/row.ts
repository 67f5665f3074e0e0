// What is one line of the benchmark, and how is it shown?
import { cpus } from 'node:os';
import { quantile, type Samples } from './measure.ts';

/** One line: the ratio of ours to the reference's. Below 1 is better for ours; for rates, above 1. */
export interface Row {
  readonly what: string;
  readonly unit: string;
  readonly reference: number;
  readonly ours: number;
  readonly ratio: number;
  /** Middle half of our samples. */
  readonly spread?: readonly [number, number];
  /** The target ratio: an upper limit, for rates a lower one. */
  readonly target?: number;
}

/** Units of which more is better. */
const RATES = ['1/s', 'Mb/s'];

/** A line of two medians. */
export function row(what: string, unit: string, reference: number, ours: number, target?: number): Row {
  return {
    what,
    unit,
    reference,
    ours,
    ratio: ours / reference,
    ...(target === undefined ? {} : { target }),
  };
}

/** A line of one part of a measurement; samples are named `<side> <part>`. */
export function compare(
  samples: Samples,
  what: string,
  part: string,
  {
    ours = 'ours',
    reference = 'reference',
    target,
  }: { ours?: string; reference?: string; target?: number } = {},
): Row {
  const own = samples.get(`${ours} ${part}`);
  const spread = [quantile(own, 0.25), quantile(own, 0.75)] as const;
  return {
    ...row(what, 'ms', quantile(samples.get(`${reference} ${part}`)), quantile(own), target),
    spread,
  };
}

/** Whether a line meets its target; undefined if it has none, or if one side could not be measured. */
export function isMet({ unit, ratio, target }: Row): boolean | undefined {
  if (target === undefined || Number.isNaN(ratio)) return undefined;
  return RATES.includes(unit) ? ratio >= target : ratio <= target;
}

/** How many lines with a target meet it, and which do not. */
export function renderBudgets(rows: readonly Row[]): string {
  const judged = rows.filter(one => isMet(one) !== undefined);
  if (judged.length === 0) return '';
  const missed = judged.filter(one => !isMet(one));
  const lines = missed.map(({ what, unit, ratio, target = Number.NaN }) => {
    const bound = RATES.includes(unit) ? 'at least' : 'at most';
    return `  missed: ${what}: ratio ${ratio.toFixed(2)}, wanted ${bound} ${target}\n`;
  });
  return `budgets: ${judged.length - missed.length} of ${judged.length} met\n${lines.join('')}`;
}

/** The lines as a human-readable table. */
export function renderTable(rows: readonly Row[], rounds: number): string {
  const number = (value: number | undefined) =>
    (value === undefined || Number.isNaN(value) ? '-' : value.toFixed(2)).padStart(10);
  const title = `medians, taking turns, ${cpus().length} cores, rounds: ${rounds}`;
  if (rows.length === 0) return `${title}\n`;
  const width = Math.max(...rows.map(({ what }) => what.length));
  const lines = rows.map(one => {
    const { what, unit, reference, ours, ratio, target, spread } = one;
    const met = isMet(one);
    const verdict = met === undefined ? '' : met ? ' met' : ' MISSED';
    const middle = spread ? spread.map(value => value.toFixed(1)).join('-') : '';
    const figures = [reference, ours, ratio, target].map(number).join('');
    return `${what.padEnd(width)} ${unit.padEnd(4)}${figures}${verdict.padEnd(9)}${middle}`.trimEnd();
  });
  const heads = ['reference', 'ours', 'ratio', 'target'].map(head => head.padStart(10)).join('');
  const head = `${''.padEnd(width + 5)}${heads}${''.padEnd(9)}middle half of ours`;
  return [title, head, ...lines, ''].join('\n');
}
