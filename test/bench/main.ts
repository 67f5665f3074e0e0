// How fast is Catena next to the reference plugins, measured in one run?
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { PLUGIN_NAMES } from '../../plugins/names.ts';
import { requiresReference, requiresRoot } from '../helpers/skip.ts';
import { measureBurst, measureChain } from './chain.ts';
import { GROWING, measureGrowth, measurePortmap } from './growth.ts';
import { measureLeases } from './leases.ts';
import { LISTS, measureLibrary, measureLoading } from './library.ts';
import { BRIDGE_CONFIGURATIONS, measureBridge } from './link.ts';
import { quantile, type Samples } from './measure.ts';
import { measureRunner } from './runner.ts';
import { measureLimited, measureUnreached } from './shaping.ts';
import { measureStart } from './start.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '20' },
    containers: { type: 'string', default: '64' },
    full: { type: 'string', default: '2000' },
    json: { type: 'boolean', default: false },
  },
});

const obstacle = requiresRoot() ?? requiresReference(...PLUGIN_NAMES);
if (obstacle) fail(`Cannot run the benchmark: it ${obstacle}`);

const rounds = Number(values.rounds);
const rows: Row[] = [
  ...libraryRows(await measureLibrary(rounds * 3), await measureLoading(Math.ceil(rounds / 4))),
  ...startRows(await measureStart(rounds * 2)),
  ...(await linkRows(rounds)),
  ...chainRows(await measureChain(rounds)),
  ...(await runnerRows(rounds)),
  ...(await burstRows(Number(values.containers))),
  ...portmapRows(await measurePortmap(rounds)),
  ...(await growthRows(Number(values.full))),
  ...(await leaseRows()),
  ...(await shapingRows()),
];
print(values.json ? `${JSON.stringify(rows, null, 2)}\n` : renderTable(rows));
process.exit(0);

/** One line: ratio is ours to the reference's; below 1 is better for ours, for rates above 1. */
interface Row {
  readonly what: string;
  readonly unit: string;
  readonly reference: number;
  readonly ours: number;
  readonly ratio: number;
  /** Middle half of our samples. */
  readonly spread?: readonly [number, number];
}

/** Nothing of the reference's to compare with: the column is the bare subprocess, and the difference what we add. */
function libraryRows(library: Samples, loading: Samples): Row[] {
  const bare = quantile(library.get('bare per link'));
  const perLink = (name: string) => quantile(library.get(`${name} per link`));
  const added = perLink('library') - bare;
  return [
    row(`library: read ${LISTS} lists (target 150)`, 'ms', Number.NaN, quantile(loading.get('load lists'))),
    row('library: ADD per link, bare subprocess', 'ms', bare, perLink('library')),
    row('library: CHECK per link, bare subprocess', 'ms', bare, perLink('library CHECK')),
    row('library: added per link (target 1)', 'ms', Number.NaN, added),
    row('library:   of it execa', 'ms', Number.NaN, perLink('execa') - bare),
    row('library:   ADD per link without a process', 'ms', Number.NaN, perLink('no process')),
  ];
}

function startRows(samples: Samples): Row[] {
  const empty = quantile(samples.get('empty VERSION'));
  return [
    row('process: empty program', 'ms', Number.NaN, empty),
    ...PLUGIN_NAMES.map(name => compare(samples, `process: ${name} VERSION`, 'VERSION', ` ${name}`)),
  ];
}

async function linkRows(rounds: number): Promise<Row[]> {
  const rows: Row[] = [];
  for (const configuration of Object.keys(BRIDGE_CONFIGURATIONS) as (keyof typeof BRIDGE_CONFIGURATIONS)[]) {
    const samples = await measureBridge(configuration, rounds);
    for (const verb of ['ADD', 'DEL']) {
      rows.push(compare(samples, `bridge, ${configuration}: ${verb}`, verb, ''));
    }
  }
  return rows;
}

function chainRows(samples: Samples): Row[] {
  return ['ADD', 'CHECK, no port mapping', 'DEL'].map(verb =>
    compare(samples, `chain, cold: ${verb}`, verb, ''),
  );
}

/** The column of the reference is the bare chain, links of the same makers in both. */
async function runnerRows(rounds: number): Promise<Row[]> {
  const rows: Row[] = [];
  for (const links of ['reference', 'ours'] as const) {
    const samples = await measureRunner(links, rounds);
    const median = (key: string) => quantile(samples.get(key));
    for (const verb of ['ADD', 'CHECK', 'DEL']) {
      const what = `delegate runner, ${links === 'ours' ? 'our' : "the reference's"} links: ${verb}, bare chain`;
      rows.push(row(what, 'ms', median(`bare ${verb}`), median(`runner ${verb}`)));
    }
  }
  return rows;
}

async function burstRows(containers: number): Promise<Row[]> {
  const [ours, reference] = [
    await measureBurst('ours', containers),
    await measureBurst('reference', containers),
  ];
  return (['ADD', 'DEL'] as const).flatMap(verb => [
    row(`burst of 8, ${containers} containers: ${verb}`, 'ms', reference[verb].medianMs, ours[verb].medianMs),
    row(
      `burst of 8, ${containers} containers: ${verb}`,
      '1/s',
      reference[verb].perSecond,
      ours[verb].perSecond,
    ),
  ]);
}

function portmapRows(samples: Samples): Row[] {
  return ['ADD', 'DEL'].map(verb => compare(samples, `portmap alone, one port: ${verb}`, verb, ''));
}

/** Here both columns are ours: a node with few containers, and one that is full. */
async function growthRows(full: number): Promise<Row[]> {
  const few = 10;
  const rows: Row[] = [];
  for (const link of GROWING) {
    const samples = await measureGrowth(link, [few, full], rounds);
    for (const verb of ['ADD', 'DEL']) {
      const [small, large] = [few, full].map(size => quantile(samples.get(`${size} ${verb}`)));
      rows.push(
        row(`${link} ${verb}: ${few} | ${full} containers`, 'ms', small ?? Number.NaN, large ?? Number.NaN),
      );
    }
  }
  return rows;
}

/** Ours alone: whole processes, on a network with few leases and on one that has hardly an address left. */
async function leaseRows(): Promise<Row[]> {
  const [few, full] = [10, 60_000];
  const [small, large] = [await measureLeases(few, rounds), await measureLeases(full, rounds)];
  return ['ADD, next', 'ADD, past all', 'DEL'].map(part =>
    row(
      `host-local ${part}: ${few} | ${full} leases`,
      'ms',
      quantile(small.get(`${few} ${part}`)),
      quantile(large.get(`${full} ${part}`)),
    ),
  );
}

/** Ours alone: throughput with one bucket for everything, or with no queue at all, next to that with a tree of classes. */
async function shapingRows(): Promise<Row[]> {
  const [limited, unreached] = [await measureLimited(rounds), await measureUnreached(rounds)];
  const trees = ['tree, limited', 'tree, not limited'];
  return (['towards', 'from'] as const).flatMap(way => {
    const against = (samples: Samples, plain: string, shape: string) =>
      row(
        `bandwidth ${way} pods: ${plain} | ${shape}`,
        'Mb/s',
        quantile(samples.get(`${plain} ${way}`)),
        quantile(samples.get(`${shape} ${way}`)),
      );
    return [
      against(limited, 'bucket', 'tree, limited'),
      ...trees.map(shape => against(unreached, 'bucket', shape)),
      ...['bucket', ...trees].map(shape => against(unreached, 'none', shape)),
    ];
  });
}

function compare(samples: Samples, what: string, part: string, suffix: string): Row {
  const own = samples.get(`ours${suffix} ${part}`);
  const spread = [quantile(own, 0.25), quantile(own, 0.75)] as const;
  return { ...row(what, 'ms', quantile(samples.get(`reference${suffix} ${part}`)), quantile(own)), spread };
}

function row(what: string, unit: string, reference: number, ours: number): Row {
  return { what, unit, reference, ours, ratio: ours / reference };
}

function renderTable(all: readonly Row[]): string {
  const number = (value: number) => (Number.isNaN(value) ? '-' : value.toFixed(2)).padStart(10);
  const lines = all.map(one => {
    const spread = one.spread ? `  ${one.spread.map(value => value.toFixed(1)).join('-')}` : '';
    return `${one.what.padEnd(45)} ${one.unit.padEnd(4)}${number(one.reference)}${number(one.ours)}${number(one.ratio)}${spread}`;
  });
  const head = `${''.padEnd(50)}${'reference'.padStart(10)}${'ours'.padStart(10)}${'ratio'.padStart(10)}  middle half of ours`;
  return [`medians, taking turns, ${cpus().length} cores, rounds: ${rounds}`, head, ...lines, ''].join('\n');
}

function print(text: string): void {
  process.stdout.write(text);
}

function fail(text: string): never {
  process.stderr.write(`${text}\n`);
  process.exit(1);
}
