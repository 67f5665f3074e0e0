// How are the figures of a soak shown?

import { type ChurnReport, findFaults } from './churn.ts';
import { findLeaks, type SoakReport } from './soak.ts';

/** The figures of a soak over time, one row for each sample. */
export function render(report: SoakReport): string {
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

/** The requests of a churn, what was killed, and the problems at the end. */
export function renderChurn(report: ChurnReport): string {
  const { requests, seconds, verbs, killed } = report;
  const lines = Object.entries(verbs).map(([verb, { asked, failed: lost }]) => {
    return `  ${verb.padEnd(6)}${String(asked).padStart(8)}, of which ${lost} failed`;
  });
  const faults = findFaults(report);
  return [
    `churn: ${requests} requests, eight at a time, in ${seconds.toFixed(0)} s (${(requests / seconds).toFixed(1)} per second)`,
    ...lines,
    `  killed: ${killed.workers} workers, ${killed.daemons} daemons`,
    `  memory of daemon and workers, at each tenth: ${report.memoryMb.join(', ')} MiB`,
    ...(report.restingMb === undefined ? [] : [`  when they rest: ${report.restingMb} MiB`]),
    ...(faults.length
      ? faults.map(fault => `  FAULT ${fault}`)
      : ['  every attachment in its reported state, nothing left']),
    '',
  ].join('\n');
}
