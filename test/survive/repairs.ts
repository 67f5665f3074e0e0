// Does the next daemon complete a repair, whichever request was the last one of the daemon that began it?

import { RepairedHost, type RepairPoint } from './repair-trial.ts';
import type { Section } from './section.ts';

/** The short form tries every nth point; the offset depends on the day, so that all points are tried eventually. */
const SHORT_STEP = 25;
const DAY_MS = 86_400_000;
/** Hosts on which points are tried concurrently. */
const LANES = 3;

/** Deaths of a daemon in a repair of the full chain, and of its worker. */
export const repairs: Section = {
  name: 'repairs',
  counts: 'deaths in a repair',
  async run({ short, say }) {
    const step = short ? SHORT_STEP : 1;
    const offset = Math.floor(Date.now() / DAY_MS) % step;
    const wrong: string[] = [];
    const [tried, missed] = [[] as RepairPoint[], [] as RepairPoint[]];
    const hosts = await Promise.all(Array.from({ length: LANES }, () => RepairedHost.make()));
    let all: RepairPoint[] = [];
    try {
      all = (await hosts[0]?.count()) ?? [];
      const queue = all.filter((_, i) => i % step === offset);
      const lane = async (first: RepairedHost, n: number): Promise<void> => {
        let host = first;
        for (let point = queue.shift(); point !== undefined; point = queue.shift()) {
          const outcome = await host.tryPoint(point);
          (outcome.happened ? tried : missed).push(point);
          wrong.push(...outcome.wrong.map(problem => `${describe(point)}: ${problem}`));
          if ((tried.length + missed.length) % 20 === 0) say(`repairs: ${tried.length} deaths`);
          if (outcome.wrong.length === 0) continue;
          await host.close();
          host = hosts[n] = await RepairedHost.make();
        }
        wrong.push(...(await host.findLeftovers()).map(left => `after the last DEL: ${left}`));
      };
      await Promise.all(hosts.map(lane));
    } finally {
      await Promise.all(hosts.map(host => host.close()));
    }
    return { tried: tried.length, table: render(all, tried, missed), wrong };
  },
};

function render(all: readonly RepairPoint[], tried: readonly RepairPoint[], missed: readonly RepairPoint[]) {
  const deaths = [...new Set(all.map(({ death }) => death))];
  const count = (points: readonly RepairPoint[], of: string) =>
    points.filter(({ death }) => death === of).length;
  const rows = deaths.map(
    death => `REPAIR, ${death.padEnd(16)} ${count(tried, death)} tried of ${count(all, death)}`,
  );
  return [...rows, ...missed.map(point => `not reached again: ${describe(point)}`), ''].join('\n');
}

function describe({ death, what }: RepairPoint): string {
  return `REPAIR ${death} at ${what.slice(0, 160)}`;
}
