// What is the outcome of a row, and which of the listed differences explain it?

import { findDifferences, normalise } from '../../src/lab/compare/differ.ts';
import { DIFFERENCES, type Difference, type Finding, type TableName } from './differences.ts';
import { createTwin, type Outcome, type Twin } from './ground.ts';
import { LIFE, type TwinRow } from './row.ts';

/** The outcome of a row on both sides. */
export interface RowReport {
  readonly row: TwinRow;
  /** `ADD ok, CHECK fails / ok, …`: the reference's outcome first where they disagree. */
  readonly outcome: string;
  /** Listed differences that occurred. */
  readonly explained: ReadonlySet<Difference>;
  readonly unexplained: readonly Finding[];
}

/** Runs a row on both sides at once and compares. */
export async function runRow(row: TwinRow, table: TableName): Promise<RowReport> {
  const [reference, ours] = await Promise.all([runSide('reference', row), runSide('ours', row)]);
  const findings = [...reference.entries()].flatMap(([i, theirs]) => {
    const own = ours[i];
    const label = theirs.failed && own?.failed ? `${theirs.label} (fails)` : theirs.label;
    return findDifferences(theirs.seen, own?.seen, [label]).map(({ names, first, second }) => {
      return { row: row.name, path: names.join('/'), reference: first, ours: second };
    });
  });
  const listed = DIFFERENCES.filter(difference => isIn(difference, table));
  const explained = new Set<Difference>();
  const unexplained = findings.filter(finding => {
    const reasons = listed.filter(difference => explains(difference, finding));
    for (const reason of reasons) explained.add(reason);
    return reasons.length === 0;
  });
  return { row, outcome: describe(reference, ours), explained, unexplained };
}

/** Parts in which only those differences must occur that name them. */
const OWN_TABLES: readonly TableName[] = ['vlans', 'macvlans', 'devices', 'uppers', 'vrfs'];

/** Differences that should have occurred among the reports of a whole table but did not. */
export function stale(reports: readonly RowReport[], table: TableName): Difference[] {
  const bound = DIFFERENCES.filter(({ in: part }) => !OWN_TABLES.includes(table) || part !== undefined);
  return bound.filter(
    difference => isIn(difference, table) && !reports.some(({ explained }) => explained.has(difference)),
  );
}

/** The printed table: each row with its outcome and the numbers of the differences, then the meaning of the numbers. */
export function render(reports: readonly RowReport[]): string {
  const used = DIFFERENCES.filter(difference => reports.some(({ explained }) => explained.has(difference)));
  const lines = reports.map(({ row, outcome, explained, unexplained }) => {
    const numbers = used.flatMap((difference, i) => (explained.has(difference) ? [i + 1] : []));
    const verdict = unexplained.length === 0 ? 'same' : `${unexplained.length} UNEXPLAINED`;
    return `${row.name.padEnd(58)} ${verdict.padEnd(6)} ${outcome.padEnd(44)} ${numbers.join(' ')}`;
  });
  const legend = used.map((difference, i) => {
    const quirk = difference.quirk === undefined ? '' : ` [${difference.quirk}]`;
    return `${String(i + 1).padStart(3)}  ${difference.reason}${quirk}`;
  });
  return [...lines, '', 'Differences that applied:', ...legend, ''].join('\n');
}

/** One line for an unexplained difference. */
export function renderFinding({ path, reference, ours }: Finding): string {
  const short = (value: unknown): string => {
    const text = JSON.stringify(value) ?? 'absent';
    return text.length > 300 ? `${text.slice(0, 300)}…` : text;
  };
  return `${path}: reference ${short(reference)}, ours ${short(ours)}`;
}

async function runSide(side: Twin['side'], row: TwinRow): Promise<Outcome[]> {
  const twin = await createTwin(side, row);
  try {
    await row.prepare?.(twin);
    const outcomes: Outcome[] = [];
    for (const step of row.steps ?? LIFE) {
      const outcome = await twin.take(step);
      const before = outcomes.filter(({ label }) => label.replace(/ \d+$/, '') === outcome.label).length;
      outcomes.push(before === 0 ? outcome : { ...outcome, label: `${outcome.label} ${before + 1}` });
    }
    return normalise(outcomes, JSON.stringify(row), twin.common, holderOf);
  } finally {
    await twin.lab.close();
  }
}

/** The owner of a hardware address: devices are stored by namespace and name, as `ip` prints them. */
export function holderOf(
  value: Record<string, unknown>,
  path: readonly string[],
): readonly [string, string] | undefined {
  const link = value.link as { link_type?: string; address: string } | undefined;
  return link?.link_type === 'ether' ? [link.address, `${path.at(-3)}/${path.at(-1)}`] : undefined;
}

function isIn(difference: Difference, table: TableName): boolean {
  const { in: part = table } = difference;
  return part === table || part.includes(table);
}

/** Whether a listed difference matches a finding. */
export function explains({ path, rows, when }: Difference, finding: Finding): boolean {
  return path.test(finding.path) && (rows?.test(finding.row) ?? true) && (when?.(finding) ?? true);
}

function describe(reference: readonly Outcome[], ours: readonly Outcome[]): string {
  const word = (outcome: Outcome | undefined): string => (outcome?.failed ? 'fails' : 'ok');
  return reference
    .map((theirs, i) => {
      const words = [word(theirs), word(ours[i])];
      return `${theirs.label} ${words[0] === words[1] ? words[0] : words.join('/')}`;
    })
    .join(', ');
}
