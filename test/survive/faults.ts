// Does everything or nothing remain, whichever request of ADD, DEL and GC fails or is the last one of its process?

import type { Figures, Form, Section } from './section.ts';
import { findFaults, type SweepReport, sweepVerb } from './sweep.ts';
import { renderFaults, titleOf } from './table.ts';

/** The short form tries every nth point; the offset depends on the day, so that all points are tried eventually. */
const SHORT_STEP = 30;
const DAY_MS = 86_400_000;

/**
 * Alone on its host, an attachment creates and deletes what all attachments share; its GC does the same as next to another one.
 */
const SWEEPS = [
  { verb: 'add', where: 'busy' },
  { verb: 'del', where: 'busy' },
  { verb: 'gc', where: 'busy' },
  { verb: 'add', where: 'alone' },
  { verb: 'del', where: 'alone' },
  { verb: 'add', where: 'daemon' },
  { verb: 'del', where: 'daemon' },
  { verb: 'gc', where: 'daemon' },
  { verb: 'add', where: 'firewall' },
  { verb: 'del', where: 'firewall' },
  { verb: 'add', where: 'flannel' },
  { verb: 'del', where: 'flannel' },
  { verb: 'gc', where: 'flannel' },
] as const;

/** Every request of the full chain's verbs, once for each fault that can happen there. */
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
  const every = short ? SHORT_STEP : 1;
  const offset = Math.floor(Date.now() / DAY_MS);
  let [tried, bad] = [0, 0];
  return sweepVerb({ ...sweep, every, offset }, ({ wrong }) => {
    tried += 1;
    if (wrong.length) bad += 1;
    if (tried % 100 === 0 || wrong.length) say(`${titleOf(sweep)}: ${tried} tried, ${bad} wrong`);
  });
}
