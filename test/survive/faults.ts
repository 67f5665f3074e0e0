// Does everything or nothing remain, whichever request of ADD, DEL and GC fails or is the last one of its process?

import { CHAINS } from './chains.ts';
import type { Figures, Form, Section } from './section.ts';
import { findFaults, findWrong, type SweepPlan, type SweepReport, sweepVerb } from './sweep.ts';
import { renderFaults, titleOf } from './table.ts';

/** The short form tries every nth point; the offset depends on the day, so that all points are tried eventually. */
const SHORT_STEP = 30;
const DAY_MS = 86_400_000;

const PLUGINS = Object.keys(CHAINS) as (keyof typeof CHAINS)[];
const VERBS = ['add', 'del', 'gc'] as const;

/**
 * Alone on its host, an attachment creates and deletes what all attachments share; its GC does the same as next to another one. Of
 * the chains that differ in one plugin, every third point, others each day.
 */
const SWEEPS: readonly Omit<SweepPlan, 'offset'>[] = [
  ...VERBS.map(verb => ({ verb, where: 'busy', every: 1 }) as const),
  { verb: 'add', where: 'alone', every: 1 },
  { verb: 'del', where: 'alone', every: 1 },
  ...VERBS.map(verb => ({ verb, where: 'daemon', every: 1 }) as const),
  ...PLUGINS.flatMap(where => VERBS.map(verb => ({ verb, where, every: 3 }))),
];

/** Requests of verbs, once for each fault that can happen there. */
export const faults: Section = {
  name: 'faults',
  counts: 'points of failure tried',
  async run(form): Promise<Figures> {
    const reports: SweepReport[] = [];
    for (const sweep of form.short ? SWEEPS.slice(0, 3) : SWEEPS) reports.push(await runOne(sweep, form));
    const outcomes = reports.flatMap(report => report.outcomes);
    return {
      tried: outcomes.filter(({ happened }) => happened).length,
      table: renderFaults(reports),
      wrong: findFaults(reports),
    };
  },
};

async function runOne(sweep: (typeof SWEEPS)[number], { short, say }: Form): Promise<SweepReport> {
  const every = short ? SHORT_STEP : sweep.every;
  const offset = Math.floor(Date.now() / DAY_MS);
  let [tried, bad] = [0, 0];
  return sweepVerb({ ...sweep, every, offset }, outcome => {
    tried += 1;
    if (outcome.wrong.length) bad += 1;
    for (const problem of findWrong(outcome)) say(problem);
    if (tried % 100 === 0) say(`${titleOf(sweep)}: ${tried} tried, ${bad} wrong`);
  });
}
