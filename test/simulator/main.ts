// What does the allocator of a cluster take, and ask for?
//
//   bun test/simulator/main.ts             against the model: 2 ms there and back, on average
//   bun test/simulator/main.ts --nodes 500 more nodes, five pods each
//   bun test/simulator/main.ts --only single   loads whose name contains this
//   bun test/simulator/main.ts --points    each fate of each request of ADD, DEL, upkeep and GC
//   bun test/simulator/main.ts --churn 3600    so many seconds of everything failing, in simulated time
//   KUBERNETES_BIN=<dir> bun test/simulator/main.ts --real   against a real API server
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readOptions, refuse } from '../helpers/options.ts';
import { NO_REAL_API, startRealApi } from '../helpers/real-api.ts';
import { Random } from '../storm/random.ts';
import { apiModel } from './api-model.ts';
import { findContradictions } from './checker.ts';
import { churn } from './churn.ts';
import { clientOf, FATES } from './faults.ts';
import { counted, type Figures, type Load, measureLoad } from './figures.ts';
import { LOADS } from './loads.ts';
import { HISTORIES, tryEveryPoint } from './points.ts';

const { values } = readOptions(
  {
    options: {
      real: { type: 'boolean' },
      seed: { type: 'string', default: '1' },
      nodes: { type: 'string' },
      only: { type: 'string' },
      points: { type: 'boolean' },
      churn: { type: 'string' },
    },
  },
  'nodes',
  'churn',
);
const seed = Number(values.seed);
const loads: Record<string, Load> = values.nodes
  ? {
      [`${values.nodes} nodes, five pods each, blocks of 16`]: {
        ...{
          nodes: Number(values.nodes),
          pods: Number(values.nodes) * 5,
          networks: 1,
          atOnce: 5,
          pool: 'many',
        },
        spec: { subnets: [{ ipv4: '10.96.0.0/16' }], blockSize: 16 },
      },
    }
  : Object.fromEntries(Object.entries(LOADS).filter(([name]) => name.includes(values.only ?? '')));
if (Object.keys(loads).length === 0) refuse(`There is no load whose name contains "${values.only}"`);

if (values.real) await againstReal();
else if (values.points) await atEveryPoint();
else if (values.churn) await inChurn(Number(values.churn));
else await againstModel();

async function atEveryPoint(): Promise<void> {
  for (const [name, history] of Object.entries(HISTORIES)) {
    const found: string[] = [];
    let all = 0;
    for (const fate of FATES) {
      const { points, problems } = await tryEveryPoint(history, fate);
      all += points;
      found.push(...problems.map(text => `${fate}: ${text}`));
    }
    print(`${name}: ${all} points (${FATES.length} fates), ${found.length} contradictions`);
    complain(found);
  }
}

async function inChurn(seconds: number): Promise<void> {
  const begun = performance.now();
  const { counts, checks, problems } = await churn({ seconds, nodes: 12, seed });
  print(
    `${seconds} s on 12 nodes (seed ${seed}), simulated in ${((performance.now() - begun) / 1000).toFixed(0)} s:`,
  );
  for (const [what, count] of Object.entries(counts).sort(([a], [b]) => (a < b ? -1 : 1)))
    print(`  ${String(count).padStart(7)}  ${what}`);
  print(`  ${checks} comparisons of all holders: ${problems.length} contradictions`);
  complain(problems);
}

async function againstModel(): Promise<void> {
  for (const [name, load] of Object.entries(loads)) {
    const model = apiModel();
    const draws = new Random(seed);
    for (let i = 0; i < load.nodes; i++) model.put(`api/v1/nodes/n${i}`, { metadata: { name: `n${i}` } });
    const way = { fate: () => 'arrives' as const, latencyMs: () => 2 * draws.next() };
    const problems: string[] = [];
    const figures = await measureLoad(load, counted(clientOf(model, way)), seed, nodes => {
      problems.push(...findContradictions(model, nodes));
    });
    report(name, figures, problems);
  }
}

async function againstReal(): Promise<void> {
  if (NO_REAL_API !== undefined) throw new Error(NO_REAL_API);
  const dir = mkdtempSync(join(tmpdir(), 'cat-api-'));
  const api = await startRealApi(dir);
  try {
    for (const [name, load] of Object.entries(loads)) {
      for (let i = 0; i < load.nodes; i++) await api.addNode(`n${i}`);
      const problems: string[] = [];
      const figures = await measureLoad(load, counted(api.server), seed, nodes => {
        const all = nodes.flatMap(node => node.leases());
        if (new Set(all).size !== all.length) problems.push('an address is leased twice');
      });
      report(name, figures, problems);
    }
  } finally {
    await api.close();
    rmSync(dir, { recursive: true, force: true });
  }
}

function report(name: string, figures: Figures, problems: readonly string[]): void {
  const { adds, seconds, medianMs, p99Ms, requestsPerAdd, conflicts, efficiency, failed } = figures;
  process.stdout.write(
    `${name}: ${adds} ADDs (${failed} failed) in ${seconds.toFixed(1)} s; median ${medianMs.toFixed(1)} ms, ` +
      `99 of 100 within ${p99Ms.toFixed(0)} ms; ${requestsPerAdd.toFixed(2)} requests per ADD, ${conflicts} conflicts; ` +
      `${Math.round(efficiency * 100)} % of the claimed addresses leased; ${problems.length} contradictions\n`,
  );
  complain(problems);
}

function complain(problems: readonly string[]): void {
  for (const problem of problems.slice(0, 5)) print(`  ${problem}`);
  if (problems.length) process.exitCode = 1;
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
