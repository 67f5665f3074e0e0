// What does a part of the table look like as tests?

import { expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeRoot, requires, requiresReference } from '../helpers/skip.ts';
import type { TableName } from './differences.ts';
import { executablesOf } from './row.ts';
import { TABLES } from './rows/tables.ts';
import { type RowReport, renderFinding, runRow, stale } from './table.ts';

const WRITTEN = readFileSync(join(import.meta.dir, 'DEFECTS.md'), 'utf8').split('\n');

/** One test for each row of a part, and one that no listed difference is out of date. */
export function describeTwins(name: TableName): void {
  const { rows = [], needs } = TABLES.find(table => table.name === name) ?? {};
  const executables = [...new Set(rows.flatMap(executablesOf))].filter(type => /^[a-z-]+$/.test(type));
  describeRoot(
    `twins of the reference: ${name}`,
    () => {
      const reports: RowReport[] = [];
      test.each(rows.map(row => [row.name, row] as const))('[1.0.0] %s', async (_name, row) => {
        const report = await runRow(row, name);
        reports.push(report);
        expect(report.unexplained.map(renderFinding)).toEqual([]);
      });

      test.serial('every listed difference occurs', () => {
        if (reports.length < rows.length) return;
        process.stdout.write(summary(name, reports));
        // The outcome of the rows of devices is written down, so that it need not be run to be known.
        if (WRITTEN.some(line => new RegExp(`^\\| ${name} \\| \\d`).test(line)))
          expect(WRITTEN).toContain(outcomeOf(name, reports));
        expect(stale(reports, name).map(({ path, reason }) => `${path}: ${reason}`)).toEqual([]);
      });
    },
    requires('ip', 'tc', 'nft', 'iptables', 'ping'),
    requiresReference(...executables.filter(type => type !== 'not-there')),
    needs?.(),
  );
}

/** The line about a part in the table of outcomes. */
function outcomeOf(name: TableName, reports: readonly RowReport[]): string {
  const alike = reports.filter(({ unexplained }) => unexplained.length === 0);
  const differences = new Set(reports.flatMap(({ explained }) => [...explained]));
  return `| ${name} | ${alike.length} of ${reports.length} | ${differences.size} |`;
}

function summary(name: TableName, reports: readonly RowReport[]): string {
  const alike = reports.filter(({ unexplained }) => unexplained.length === 0);
  const differences = new Set(reports.flatMap(({ explained }) => [...explained]));
  const rows = `${alike.length} of ${reports.length} configurations as the reference`;
  return `| twins: ${name} | ${rows}, but for ${differences.size} intended differences (npm run twin) |\n`;
}
