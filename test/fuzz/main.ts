// Pushes random inputs through every door, and prints the outcome.
//
//   npm run fuzz                                       200,000 inputs with today's seed
//   npm run fuzz -- --inputs 5000 --seed 7             fewer, and the same every time
//   npm run fuzz -- --door stdin --inputs 400 --seed 9 one door: the doors whose name contains this

import { readOptions, refuse } from '../helpers/options.ts';
import { requiresRoot } from '../helpers/skip.ts';
import { DOORS } from './doors.ts';
import { renderDoors, renderFailure, renderFigures, runFuzz } from './run.ts';

const { values } = readOptions({
  options: {
    inputs: { type: 'string', default: '200000' },
    seed: { type: 'string', default: String(Math.floor(Date.now() / 1000)) },
    door: { type: 'string' },
  },
});
const obstacle = requiresRoot();
if (obstacle !== undefined) {
  process.stderr.write(`Cannot run the fuzzing: it ${obstacle}\n`);
  process.exit(1);
}
const door = DOORS.some(({ name }) => name.includes(values.door ?? ''));
if (!door) refuse(`There is no door whose name contains "${values.door}"`);
const report = await runFuzz({
  inputs: Number(values.inputs),
  seed: Number(values.seed),
  door: values.door,
  onFailure: failure => process.stderr.write(`${renderFailure(failure)}\n`),
});
process.stdout.write(`${renderDoors(report)}${renderFigures(report)}`);
process.exit(report.failures.length + report.strayFiles.length > 0 ? 1 : 0);
