// Prints the table: every configuration with its outcome on both sides, and the intentional differences.
//
//   npm run twin                    all rows
//   npm run twin -- 'bridge, mtu'   rows whose name contains one of the arguments

import { requiresReference, requiresRoot } from '../helpers/skip.ts';
import { TABLES } from './rows/tables.ts';
import { type RowReport, render, renderFinding, runRow, stale } from './table.ts';

const obstacle = requiresRoot() ?? requiresReference('bridge');
if (obstacle !== undefined) {
  process.stderr.write(`Cannot compare: it ${obstacle}\n`);
  process.exit(1);
}

const filters = process.argv.slice(2);
let failed = false;
for (const { name, rows, needs } of TABLES) {
  const missing = needs?.();
  if (missing !== undefined) {
    process.stdout.write(`${name}: skipped, ${missing} (npm run vm -- twin/${name})\n`);
    continue;
  }
  const wanted = rows.filter(row => filters.length === 0 || filters.some(part => row.name.includes(part)));
  if (wanted.length === 0) continue;
  const started = performance.now();
  const reports: RowReport[] = [];
  for (const row of wanted) reports.push(await runRow(row, name));
  const seconds = ((performance.now() - started) / 1000).toFixed(0);
  process.stdout.write(
    `${name}: ${reports.length} of ${rows.length} rows in ${seconds} s\n${render(reports)}\n`,
  );
  for (const { row, unexplained } of reports) {
    for (const finding of unexplained)
      process.stdout.write(`UNEXPLAINED ${row.name}: ${renderFinding(finding)}\n`);
  }
  const old = filters.length === 0 ? stale(reports, name) : [];
  for (const { reason, path } of old) process.stdout.write(`STALE ${path}: ${reason}\n`);
  failed ||= old.length > 0 || reports.some(report => report.unexplained.length > 0);
}
process.exit(failed ? 1 : 0);
