// How are the figures of a storm shown?

import { describeRounds } from './history.ts';
import type { Finding, StormReport } from './storm.ts';

/** Seeds, actions, and what was found with the shortest history that shows it. */
export function render(report: StormReport, fileOf: (finding: Finding) => string): string {
  const { seeds, steps, rounds, seconds, kinds, findings } = report;
  const rows = Object.entries(kinds).sort(([a], [b]) => (a < b ? -1 : 1));
  const head = [
    `seeds ${seeds}, rounds ${rounds}, steps ${steps} in ${seconds.toFixed(0)} s (${(steps / seconds).toFixed(1)} per second)`,
    '| action | done | failed |',
    '|---|---|---|',
    ...rows.map(([kind, { done, failed }]) => `| ${kind} | ${done} | ${failed} |`),
    `violations: ${findings.reduce((sum, { seeds: of }) => sum + of.length, 0)}, of ${findings.length} rules`,
  ];
  return [...head, ...findings.flatMap(finding => renderFinding(finding, fileOf(finding)))].join('\n');
}

function renderFinding(
  { rule, seeds, afterSteps, afterSeconds, first, shrunk }: Finding,
  file: string,
): string[] {
  const { violations, log } = shrunk?.report ?? first;
  const rounds = shrunk?.history.rounds ?? first.history.rounds;
  return [
    '',
    `VIOLATION ${rule}: ${seeds.length} seeds (${seeds.slice(0, 8).join(', ')}); first after ${afterSteps} steps, ${afterSeconds.toFixed(0)} s`,
    ...violations.map(one => `  ${one.rule}: ${one.text}`),
    `  shortest history${shrunk ? `, after ${shrunk.tries} tries` : ''}; again: npm run storm -- --replay ${file}`,
    ...describeRounds(rounds.slice(-12)).map(line => `    ${line}`),
    '  what happened at last:',
    ...log.slice(-25).map(line => `    ${line}`),
  ];
}
