// Does everything survive the faults that can happen to it? Prints one table of figures; exit code 1 if anything was lost or
// leaked.
//
//   npm run survive                    everything: 20 to 30 minutes on two cores
//   npm run survive -- --short         a sample of each part
//   npm run survive -- --only churn    one part: `faults`, `repairs`, `fuzz`, `churn`

import { readOptions, refuse } from '../helpers/options.ts';
import { requires, requiresRoot } from '../helpers/skip.ts';
import { churn } from './churn.ts';
import { faults } from './faults.ts';
import { fuzz } from './fuzz.ts';
import { repairs } from './repairs.ts';
import type { Figures, Section } from './section.ts';

const SECTIONS: readonly Section[] = [faults, repairs, fuzz, churn];

const { values } = readOptions({
  options: { short: { type: 'boolean', default: false }, only: { type: 'string', multiple: true } },
});
const obstacle = requiresRoot() ?? requires('strace');
if (obstacle !== undefined) {
  process.stderr.write(`Cannot run: it ${obstacle}\n`);
  process.exit(1);
}
const unknown = values.only?.find(name => !SECTIONS.some(section => section.name === name));
if (unknown !== undefined) refuse(`There is no part "${unknown}"`);
const chosen = SECTIONS.filter(({ name }) => values.only?.includes(name) ?? true);
const started = performance.now();
const figures: [Section, Figures][] = [];
for (const section of chosen) {
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const one = await section.run({ short: values.short, say });
  process.stdout.write(`${one.table}\n`);
  for (const problem of one.wrong) process.stdout.write(`WRONG ${problem}\n`);
  figures.push([section, one]);
}
const wrong = figures.reduce((sum, [, one]) => sum + one.wrong.length, 0);
const rows = figures.map(([{ counts }, { tried }]) => [counts, tried.toLocaleString('en')] as const);
const minutes = ((performance.now() - started) / 60_000).toFixed(1);
for (const [title, figure] of [...rows, ['leaks', String(wrong)], ['minutes', minutes]] as const)
  process.stdout.write(`${title.padEnd(28)}${figure.padStart(10)}\n`);
process.exit(wrong ? 1 : 0);
