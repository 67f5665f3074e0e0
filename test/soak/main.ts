// Lets thousands of attachments come and go, and prints what the process and the host held meanwhile and at the end.
//
//   npm run soak                     5,000 attachments of bridge with host-local, then as many of all five links
//   npm run soak -- --lives 500      fewer
//   npm run soak -- --churn 10000    requests through a daemon, which is killed now and then, as are its workers

import { parseArgs } from 'node:util';
import { requiresRoot } from '../helpers/skip.ts';
import { type ChurnReport, findFaults, runChurn } from './churn.ts';
import { findLeaks, runSoak, type SoakReport } from './soak.ts';

const { values } = parseArgs({
  options: { lives: { type: 'string', default: '5000' }, churn: { type: 'string' } },
});
const obstacle = requiresRoot();
if (obstacle !== undefined) {
  process.stderr.write(`Cannot run the soak: it ${obstacle}\n`);
  process.exit(1);
}

const lives = Number(values.lives);
let failed = false;
if (values.churn !== undefined) {
  const report = await runChurn({ requests: Number(values.churn), killEveryMs: 500, seed: Date.now() });
  process.stdout.write(renderChurn(report));
  process.exit(findFaults(report).length ? 1 : 0);
}
for (const name of ['bridge', 'chain'] as const) {
  const report = await runSoak(name, lives, Math.max(25, Math.ceil(lives / 10)));
  process.stdout.write(`${render(report)}\n`);
  failed ||= findLeaks(report).length > 0;
}
process.exit(failed ? 1 : 0);

function render(report: SoakReport): string {
  const { name, lives, seconds, samples, left } = report;
  const columns = [
    'lives',
    'ADD',
    'CHECK',
    'DEL',
    'GC',
    'failing',
    'abandoned',
    'descriptors',
    'memoryMb',
  ] as const;
  const rows = samples.map(sample => columns.map(column => String(sample[column]).padStart(12)).join(''));
  const kinds = Object.entries(left).map(([kind, names]) => `  left, ${kind}: ${names.length}`);
  return [
    `${name}: ${lives} attachments, eight at a time, in ${seconds.toFixed(0)} s (${(lives / seconds).toFixed(1)} per second)`,
    columns.map(column => column.padStart(12)).join(''),
    ...rows,
    ...kinds,
    ...findLeaks(report).map(leak => `  LEAK ${leak}`),
    '',
  ].join('\n');
}

function renderChurn(report: ChurnReport): string {
  const { requests, seconds, verbs, killed } = report;
  const lines = Object.entries(verbs).map(([verb, { asked, failed: lost }]) => {
    return `  ${verb.padEnd(6)}${String(asked).padStart(8)}, of which ${lost} failed`;
  });
  const faults = findFaults(report);
  return [
    `churn: ${requests} requests, eight at a time, in ${seconds.toFixed(0)} s (${(requests / seconds).toFixed(1)} per second)`,
    ...lines,
    `  killed: ${killed.workers} workers, ${killed.daemons} daemons`,
    ...(faults.length
      ? faults.map(fault => `  FAULT ${fault}`)
      : ['  every attachment as its caller was told, nothing left']),
    '',
  ].join('\n');
}
