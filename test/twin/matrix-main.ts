// Prints the swap matrix: every mix of our plugins and the reference's, and how each differs from ours alone.
//
//   npm run matrix                     all of it
//   npm run matrix -- --sample         what npm run test:all runs
//   npm run matrix -- 'theirs: tuning' mixes whose name contains one of the arguments

import { requiresReference, requiresRoot } from '../helpers/skip.ts';
import { playMixes, renderMatrix } from './matrix.ts';
import { nameOf, PLUGINS, sampleOfMatrix, wholeMatrix } from './mixes.ts';
import { renderFinding } from './table.ts';

const obstacle = requiresRoot() ?? requiresReference(...new Set(Object.values(PLUGINS).flat()));
if (obstacle !== undefined) {
  process.stderr.write(`Cannot run the matrix: it ${obstacle}\n`);
  process.exit(1);
}

const given = process.argv.slice(2);
const filters = given.filter(one => !one.startsWith('--'));
const all = given.includes('--sample') ? sampleOfMatrix() : wholeMatrix();
const mixes = all.filter(
  mix => filters.length === 0 || filters.some(part => `${mix.cniVersion} ${nameOf(mix)}`.includes(part)),
);
const started = performance.now();
const reports = await Promise.all(playMixes(mixes));
const seconds = ((performance.now() - started) / 1000).toFixed(0);
process.stdout.write(`${renderMatrix(reports)}${reports.length} mixes in ${seconds} s\n`);
for (const { mix, unexplained } of reports) {
  for (const line of unexplained.map(renderFinding))
    process.stdout.write(`UNEXPLAINED ${mix.cniVersion} ${nameOf(mix)}: ${line}\n`);
}
process.exit(reports.some(({ unexplained }) => unexplained.length > 0) ? 1 : 0);
