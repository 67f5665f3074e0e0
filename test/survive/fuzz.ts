// Does arbitrary input always lead to a reply or an error of the protocol? (test/fuzz)

import { renderFailure, renderFigures, runFuzz } from '../fuzz/run.ts';
import type { Section } from './section.ts';

const INPUTS = 200_000;
const SHORT_INPUTS = 2_000;

/** Damaged inputs through every entry point. */
export const fuzz: Section = {
  name: 'fuzz',
  counts: 'inputs tried',
  async run({ short, say }) {
    const seed = Math.floor(Date.now() / 1000);
    const report = await runFuzz({
      inputs: short ? SHORT_INPUTS : INPUTS,
      seed,
      onFailure: failure => say(renderFailure(failure)),
    });
    const wrong = [
      ...report.failures.map(renderFailure),
      ...report.strayFiles.map(file => `stray file ${file}`),
    ];
    return { tried: report.inputs, table: renderFigures(report), wrong };
  },
};
