// Is every mix of our plugins and the reference's as good as ours alone, except for intentional differences?

import { findDifferences } from '../../src/lab/compare/differ.ts';
import { DIFFERENCES, type Difference, type Finding } from './differences.ts';
import { type MixOutcome, playMix } from './mix.ts';
import { type Mix, nameOf, PLUGINS } from './mixes.ts';
import { explains } from './table.ts';

/** The outcome of a mix. */
export interface MixReport {
  readonly mix: Mix;
  readonly explained: ReadonlySet<Difference>;
  readonly unexplained: readonly Finding[];
}

/** Enough to keep two cores busy while the kernel makes a chain wait for a grace period. */
const AT_ONCE = 3;

/** Runs mixes in order, a few at a time; each promise belongs to the mix at the same position. */
export function playMixes(mixes: readonly Mix[]): Promise<MixReport>[] {
  const ours = new Map<string, Promise<MixOutcome[]>>();
  const oursLike = (mix: Mix) => {
    const key = nameOf({ ...mix, theirs: [] }) + mix.cniVersion;
    const known = ours.get(key) ?? playMix({ ...mix, theirs: [] });
    ours.set(key, known);
    return known;
  };
  const play = async (mix: Mix) => {
    const own = await oursLike(mix);
    return reportOn(mix, mix.theirs.length === 0 ? own : await playMix(mix), own);
  };
  const lanes: Promise<unknown>[] = Array.from({ length: AT_ONCE }, () => Promise.resolve());
  return mixes.map((mix, i) => {
    const played = (lanes[i % AT_ONCE] ?? Promise.resolve()).then(() => play(mix));
    // The caller who awaits the promise sees the error.
    lanes[i % AT_ONCE] = played.catch(() => undefined);
    return played;
  });
}

/** One line for each combination, one column for each variant: `same`, or the numbers of the differences. */
export function renderMatrix(reports: readonly MixReport[]): string {
  const used = DIFFERENCES.filter(one => reports.some(({ explained }) => explained.has(one)));
  const chains = [...new Set(reports.map(({ mix }) => mix.chain))];
  const tables = chains.map(chain => {
    const own = reports.filter(({ mix }) => mix.chain === chain);
    const columns = [...new Set(own.map(({ mix }) => columnOf(mix)))].sort();
    const rows = [...new Set(own.map(({ mix }) => rowOf(mix)))].map(row => {
      const cells = columns.map(column => {
        const report = own.find(({ mix }) => rowOf(mix) === row && columnOf(mix) === column);
        return report ? verdictOf(report, used) : '·';
      });
      return [row, ...cells];
    });
    return renderTable([[PLUGINS[chain].join(' '), ...columns], ...rows]);
  });
  const legend = used.map(({ reason, quirk }, i) => {
    return `| ${String(i + 1).padStart(2)}  ${reason}${quirk ? ` [${quirk}]` : ''}`;
  });
  const head = '| C catena, r reference; a cell has the differences on purpose from the chain of ours';
  return [head, ...tables, ...legend, ''].join('\n');
}

/** Listed differences that should have occurred among all mixes but did not. */
export function staleOfSwaps(reports: readonly MixReport[]): Difference[] {
  return DIFFERENCES.filter(one => isOfSwaps(one) && !reports.some(({ explained }) => explained.has(one)));
}

function reportOn(mix: Mix, mixed: readonly MixOutcome[], own: readonly MixOutcome[]): MixReport {
  const row = nameOf(mix);
  const findings = mixed.flatMap((outcome, i) => {
    return findDifferences(outcome.seen, own[i]?.seen, [outcome.label]).map(({ names, first, second }) => {
      return { row, path: names.join('/'), reference: first, ours: second };
    });
  });
  const explained = new Set<Difference>();
  const unexplained = findings.filter(finding => {
    const reasons = DIFFERENCES.filter(one => isOfSwaps(one) && explains(one, finding));
    for (const reason of reasons) explained.add(reason);
    return reasons.length === 0;
  });
  return { mix, explained, unexplained: [...flawsOf(row, own), ...unexplained] };
}

/** Mixes are compared with ours alone, which therefore must succeed in every step, pass all traffic and leave nothing. */
function flawsOf(row: string, own: readonly MixOutcome[]): Finding[] {
  return own.flatMap(({ label, seen }) => {
    const { reply, traffic = {}, left = [] } = seen;
    const silent = Object.entries(traffic).filter(([, answer]) => answer === false || answer === 'no answer');
    const flaws = [
      ...(reply.error === undefined ? [] : [['reply/error', reply.error]]),
      ...silent.map(([question, answer]) => [`traffic/${question}`, answer]),
      ...(left.length === 0 ? [] : [['left', left]]),
    ];
    return flaws.map(([what, ours]) => ({ row, path: `${label}/${what}`, reference: undefined, ours }));
  });
}

function isOfSwaps({ in: part }: Difference): boolean {
  return part === undefined || part === 'swaps' || (Array.isArray(part) && part.includes('swaps'));
}

const rowOf = ({ chain, theirs }: Mix) => {
  return PLUGINS[chain].map(link => (theirs.includes(link) ? 'r' : 'C').padEnd(link.length)).join(' ');
};
const columnOf = ({ cniVersion, families }: Mix) => `${cniVersion} ${families}`;

function verdictOf({ explained, unexplained }: MixReport, used: readonly Difference[]): string {
  if (unexplained.length > 0) return `${unexplained.length} UNEXPLAINED`;
  const numbers = used.flatMap((one, i) => (explained.has(one) ? [i + 1] : []));
  return numbers.length === 0 ? 'same' : numbers.join(' ');
}

function renderTable(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map(row => row[i]?.length ?? 0)));
  return rows.map(row => `| ${row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')} |`).join('\n');
}
