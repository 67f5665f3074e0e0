// Does a chain work the same, whichever set's executable is in each place?

import { expect, test } from 'bun:test';
import { describeRoot, requires, requiresReference, requiresUpperKind } from '../helpers/skip.ts';
import { type MixReport, playMixes, renderMatrix, staleOfSwaps } from './matrix.ts';
import { nameOf, PLUGINS, sampleOfMatrix } from './mixes.ts';
import { renderFinding } from './table.ts';

const MIXES = sampleOfMatrix();

describeRoot(
  'mixes of our plugins and the reference',
  () => {
    let played: Promise<MixReport>[] | undefined;
    const reports: MixReport[] = [];
    const cases = MIXES.map((mix, i) => [mix.cniVersion, nameOf(mix), i] as const);

    test.each(cases)('[%s] %s', async (_version, _name, i) => {
      played ??= playMixes(MIXES);
      const report = await played[i];
      if (report === undefined) return;
      reports.push(report);
      expect(report.unexplained.map(renderFinding)).toEqual([]);
    });

    test.serial('every listed difference of mixes occurs', () => {
      if (reports.length < MIXES.length) return;
      process.stdout.write(renderMatrix(reports));
      expect(staleOfSwaps(reports).map(({ path, reason }) => `${path}: ${reason}`)).toEqual([]);
    });
  },
  requires('ip', 'tc', 'nft', 'iptables', 'ping'),
  requiresUpperKind('macvlan'),
  requiresReference(...new Set(Object.values(PLUGINS).flat())),
);
