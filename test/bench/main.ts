// How fast is Catena compared with the reference plugins, measured in one run?
//
//   npm run bench                              everything
//   npm run bench -- --only chain,burst        some groups
//   npm run bench -- --only runtime,alone,start,podman     what a container runtime sees
//   npm run bench -- --only runtime,alone,start,podman,chain,burst,warm,memory --containers 200
//                                              every budget, with those met and missed at the end
//   npm run bench -- --only alone --plugins macvlan,host-device     each of these plugins alone
//   npm run bench -- --only inside             how the time of a chain is spent, what could be achieved at most, and the kernel's floor
//   npm run bench -- --only allocators --rounds 200      what an address of a cluster's block costs more than one of host-local
//   npm run bench -- --only watch --attachments 1000         processor time of a daemon that watches so many
//   npm run bench -- --only hostile --rounds 50          what the worst pod and the worst node cost all others (--scene ARP: one of them)
//   npm run bench -- --json --svg chart.svg    machine-readable; a chart of what a runtime sees

import { writeFileSync } from 'node:fs';
import { PLUGIN_NAMES } from '../../plugins/registry.ts';
import { closeLabs } from '../helpers/netns.ts';
import { readOptions } from '../helpers/options.ts';
import { requiresReference, requiresRoot } from '../helpers/skip.ts';
import { type AllocatorMode, measureAllocators, surplusOf } from './allocators.ts';
import { aloneRows } from './alone.ts';
import { measureAtOnce, measureBurst } from './burst.ts';
import {
  CHAIN_TARGETS,
  CHAIN_VERBS,
  measureChain,
  measureRuntimeChain,
  measureWarmGrowth,
  RUNTIME_TARGETS,
} from './chain.ts';
import { renderChart } from './chart.ts';
import { GROWING, measureGrowth, measurePortmap } from './growth.ts';
import { hostileNodeRows, hostilePodRows } from './hostile.ts';
import { measureInside, type Profile, profileRows } from './inside.ts';
import { renderProfiles } from './inside-table.ts';
import { measureLeases } from './leases.ts';
import { buildLibcniRunner } from './libcni.ts';
import { LISTS, measureLibrary, measureLoading } from './library.ts';
import { quantile, type Samples } from './measure.ts';
import { type Memory, measureMemory } from './memory.ts';
import { BRIDGE_CONFIGURATIONS, measureBridge } from './plugin.ts';
import { measurePodman, NETWORK_COUNTS } from './podman.ts';
import { floorRows, measureRemoval } from './removal.ts';
import { compare, isMet, type Row, renderBudgets, renderTable, row } from './row.ts';
import { measureRunner } from './runner.ts';
import { LIMIT_BITS, measureLimited, measureUnreached } from './shaping.ts';
import type { Peer } from './sides.ts';
import { sizeRows } from './sizes.ts';
import { loadingMs, measureStart, OTHER_NAMES, REFERENCE_NAMES } from './start.ts';
import { noteUnmeasured, renderUnmeasured } from './unmeasured.ts';
import { measureWatching } from './watching.ts';

const { values } = readOptions({
  options: {
    only: { type: 'string' },
    plugins: { type: 'string' },
    rounds: { type: 'string', default: '20' },
    containers: { type: 'string', default: '64' },
    full: { type: 'string', default: '2000' },
    attachments: { type: 'string', default: '1000' },
    scene: { type: 'string' },
    svg: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
});

const obstacle = requiresRoot() ?? requiresReference(...REFERENCE_NAMES);
if (obstacle) fail(`Cannot run the benchmark: it ${obstacle}`);

// Otherwise hundreds of namespaces and daemons would remain.
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void closeLabs().then(() => process.exit(1)));
}
const rounds = Number(values.rounds);
const libcni = buildLibcniRunner();
const peer: Peer = { libcni: libcni.program };

/** What a plugin may take to load its modules, besides what an empty program takes. */
const LOADING_MS = 4;

/** Groups of lines by the name that `--only` takes. */
const GROUPS: Readonly<Record<string, () => Promise<Row[]>>> = {
  library: libraryRows,
  start: startRows,
  link: linkRows,
  runtime: runtimeRows,
  alone: () => aloneRows(rounds, values.plugins?.split(',')),
  podman: podmanRows,
  chain: chainRows,
  inside: insideRows,
  runner: runnerRows,
  burst: burstRows,
  crowd: crowdRows,
  warm: warmRows,
  removal: removalRows,
  portmap: portmapRows,
  growth: growthRows,
  leases: leaseRows,
  allocators: allocatorRows,
  shaping: shapingRows,
  memory: memoryRows,
  watch: watchRows,
  hostile: async () => [
    ...(await hostilePodRows(rounds, values.scene)),
    ...(values.scene === undefined || values.scene === 'node' ? await hostileNodeRows(rounds) : []),
  ],
  sizes: async () => sizeRows(),
};

/** A chain, or a plugin that a runtime calls directly, without a daemon and with one. */
const SERVED = [
  ['ours', 'cold'],
  ['warm', 'warm'],
] as const;

const wanted = values.only?.split(',') ?? Object.keys(GROUPS);
const unknown = wanted.filter(name => !Object.hasOwn(GROUPS, name));
if (unknown.length) fail(`Cannot run "${unknown.join(', ')}": there are ${Object.keys(GROUPS).join(', ')}`);
const profiles: Profile[] = [];
const rows: Row[] = [];
for (const name of wanted) {
  try {
    rows.push(...((await GROUPS[name]?.()) ?? []));
  } catch (error) {
    noteUnmeasured(`group "${name}"`, error);
  }
}
if (values.svg !== undefined) writeFileSync(values.svg, renderChart(rows));
const runner = peer.libcni
  ? 'libcni'
  : `our runner, and what a runtime sees is by a caller that does what libcni does: ${libcni.reason}`;
print(
  values.json
    ? `${JSON.stringify(rows.map(withVerdict), null, 2)}\n`
    : `the reference's chain is run by ${runner}\n${renderTable(rows, rounds)}${renderBudgets(rows)}${inside()}`,
);
process.stderr.write(renderUnmeasured());
process.exit(rows.length + profiles.length > 0 ? 0 : 1);

/** Why a budget of the chain is missed, and what could be achieved at most. */
function inside(): string {
  if (profiles.length) return renderProfiles(profiles);
  const missed = rows.some(one => /^(chain|runtime), \w+: \w+$/.test(one.what) && isMet(one) === false);
  return missed ? 'what their time is made of: npm run bench -- --only inside\n' : '';
}

function withVerdict(one: Row): Row & { readonly met?: boolean } {
  const met = isMet(one);
  return met === undefined ? one : { ...one, met };
}

/** There is nothing of the reference's to compare with: the column is the bare subprocess, and the difference is what we add. */
async function libraryRows(): Promise<Row[]> {
  const library = await measureLibrary(rounds * 3);
  const loading = await measureLoading(Math.ceil(rounds / 4));
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
    row('library:   added by a journal', 'ms', Number.NaN, perLink('journal') - perLink('no process')),
  ];
}

/** The limit is the column of the reference for what a process of ours takes to load its modules. */
async function startRows(): Promise<Row[]> {
  const samples = await measureStart(rounds * 2);
  const empty = quantile(samples.get('empty VERSION'));
  return [
    row('process: empty program', 'ms', Number.NaN, empty),
    ...REFERENCE_NAMES.map(name =>
      compare(samples, `process: ${name} VERSION`, 'VERSION', {
        ours: `ours ${name}`,
        reference: `reference ${name}`,
        target: 0.5,
      }),
    ),
    ...OTHER_NAMES.map(name =>
      row(`process: ${name} VERSION`, 'ms', Number.NaN, quantile(samples.get(`ours ${name} VERSION`))),
    ),
    ...PLUGIN_NAMES.map(name =>
      row(
        `loading ${name}, over an empty program (limit ${LOADING_MS})`,
        'ms',
        LOADING_MS,
        loadingMs(samples, name),
        1,
      ),
    ),
  ];
}

async function linkRows(): Promise<Row[]> {
  const lines: Row[] = [];
  for (const configuration of Object.keys(BRIDGE_CONFIGURATIONS) as (keyof typeof BRIDGE_CONFIGURATIONS)[]) {
    const samples = await measureBridge(configuration, rounds);
    for (const [ours, how] of SERVED) {
      lines.push(
        compare(samples, `bridge, ${configuration}, ${how}: ADD`, 'ADD', { ours, target: 0.5 }),
        compare(samples, `bridge, ${configuration}, ${how}: DEL`, 'DEL', { ours, target: 0.6 }),
      );
    }
  }
  return lines;
}

/** What a runtime sees: it starts each executable. */
async function runtimeRows(): Promise<Row[]> {
  const samples = await measureRuntimeChain(peer, rounds);
  return SERVED.flatMap(([side, how]) =>
    CHAIN_VERBS.map(verb =>
      compare(samples, `runtime, ${how}: ${verb}`, verb, {
        ours: `runtime-${side}`,
        reference: 'runtime-reference',
        target: RUNTIME_TARGETS[how][verb],
      }),
    ),
  );
}

async function podmanRows(): Promise<Row[]> {
  const samples = await measurePodman(Math.ceil(rounds / 4));
  return NETWORK_COUNTS.flatMap(count =>
    SERVED.flatMap(([side, how]) =>
      ['run', 'rm'].map(verb => {
        const targets = count === 10 && verb === 'run' ? { target: how === 'cold' ? 1 : 0.85 } : {};
        const what = `podman ${verb}, ${count} network${count === 1 ? '' : 's'}, ${how}`;
        const sides = { ours: `runtime-${side}`, reference: 'runtime-reference' };
        return compare(samples, what, `${verb} ${count}`, { ...sides, ...targets });
      }),
    ),
  );
}

async function chainRows(): Promise<Row[]> {
  const samples = await measureChain(peer, rounds);
  return SERVED.flatMap(([ours, how]) =>
    CHAIN_VERBS.map(verb =>
      compare(samples, `chain, ${how}: ${verb}`, verb, { ours, target: CHAIN_TARGETS[how][verb] }),
    ),
  );
}

/** The breakdown of the chain's time: a separate human-readable table. */
async function insideRows(): Promise<Row[]> {
  profiles.push(...(await measureInside(peer, rounds)));
  const floor = floorRows(await measureRemoval(1, rounds));
  return values.json ? [...profileRows(profiles), ...floor] : floor;
}

/** What the delegate runner adds to the bare chain. */
async function runnerRows(): Promise<Row[]> {
  const lines: Row[] = [];
  const names = { idle: 'idle', reference: "the reference's", ours: 'our' } as const;
  for (const links of ['idle', 'reference', 'ours'] as const) {
    const samples = await measureRunner(links, rounds);
    const median = (key: string) => quantile(samples.get(key));
    for (const verb of ['ADD', 'CHECK', 'DEL']) {
      const what = `delegate runner, ${names[links]} links: ${verb}, bare chain`;
      lines.push(row(what, 'ms', median(`bare ${verb}`), median(`runner ${verb}`)));
    }
  }
  return lines;
}

async function burstRows(): Promise<Row[]> {
  const containers = Number(values.containers);
  const bursts = await measureBurst(peer, containers);
  const lines: Row[] = [];
  for (const [side, how, add, del] of [
    ['ours', 'cold', 4, 3],
    ['warm', 'warm', 15, 12],
  ] as const) {
    for (const [verb, target] of [
      ['ADD', add],
      ['DEL', del],
    ] as const) {
      const [reference, ours] = [bursts.reference[verb], bursts[side][verb]];
      const what = `burst of 8, ${containers} containers, ${how}: ${verb}`;
      lines.push(
        { ...row(what, 'ms', reference.medianMs, ours.medianMs), spread: ours.spread },
        row(what, '1/s', reference.perSecond, ours.perSecond, target),
      );
    }
  }
  return lines;
}

/** Verbs of so many containers that begin at once beside a daemon: each plugin called by a runtime, and the command. */
async function crowdRows(): Promise<Row[]> {
  const lines: Row[] = [];
  for (const containers of [8, 30, 110]) {
    const crowds = await measureAtOnce(peer, ['runtime-warm', 'warm'], containers, Math.ceil(rounds / 10));
    for (const [side, verbs] of crowds) {
      for (const [verb, { medianMs, p99Ms, declined }] of Object.entries(verbs)) {
        const what = `${containers} at once, ${side}: ${verb}`;
        lines.push(
          row(`${what}, median`, 'ms', Number.NaN, medianMs),
          row(`${what}, p99`, 'ms', Number.NaN, p99Ms),
        );
        lines.push(row(`${what}, declined`, '', Number.NaN, declined));
      }
    }
  }
  return lines;
}

/** Both columns are ours: a node with few attachments, and one with many. */
async function warmRows(): Promise<Row[]> {
  const many = Number(values.attachments);
  const samples = await measureWarmGrowth([10, many], rounds);
  const line = (verb: string, target?: number): Row => {
    const what = `chain, warm: ${verb}, 10 | ${many} attachments`;
    const given = target === undefined ? {} : { target };
    return compare(samples, what, verb, { ours: `${many}`, reference: '10', ...given });
  };
  return [
    line('ADD', 1.2),
    line('DEL'),
    ...['in the kernel', 'processor time of the daemon'].flatMap(part =>
      ['ADD', 'DEL'].map(verb => line(`${verb}, ${part}`)),
    ),
    ...['ADD', 'DEL'].map(verb => ({ ...line(`${verb}, requests to the kernel`), unit: '' })),
  ];
}

/** The reference has nothing resident: its column is the limit. */
async function memoryRows(): Promise<Row[]> {
  const { busy, idle } = await measureMemory();
  const sum = (all: readonly Memory[], of: keyof Memory) =>
    all.reduce((total, one) => total + one[of], 0) / 1024 / 1024;
  const own = (what: string, all: readonly Memory[], of: keyof Memory) =>
    row(`memory: ${what}`, 'MiB', Number.NaN, sum(all, of));
  const [daemon, ...workers] = idle;
  return [
    row('memory: daemon and workers, idle, PSS (limit 80)', 'MiB', 80, sum(idle, 'proportional'), 1),
    own('  of it the daemon', daemon ? [daemon] : [], 'proportional'),
    own(`  of it workers: ${workers.length}`, workers, 'proportional'),
    own('daemon and workers, idle, sum of RSS', idle, 'resident'),
    own(`daemon and workers after a burst, PSS: ${busy.length} processes`, busy, 'proportional'),
  ];
}

/** The reference has nothing that watches: its column is the limit. */
async function watchRows(): Promise<Row[]> {
  const many = Number(values.attachments);
  const [limit, seconds] = [2, 60];
  const { used, flushed } = await measureWatching(many, seconds);
  const flush = `watch, ${many} attachments, nft flush ruleset`;
  return [
    ...used.map(({ scene, isSweep, percent }) =>
      isSweep
        ? row(`watch, ${many} attachments, ${scene}; a sweep may fall into it`, '%', Number.NaN, percent)
        : row(`watch, ${many} attachments, ${scene} (limit ${limit})`, '%', limit, percent, 1),
    ),
    row(`${flush}: noticed`, 'ms', Number.NaN, flushed.noticedMs),
    row(`${flush}: all repaired`, 'ms', Number.NaN, flushed.repairedMs),
    row(`${flush}: processor time`, 'ms', Number.NaN, flushed.usedMs),
  ];
}

/** The basis of the group commit of deletions, and the kernel's floor of a DEL: both columns are ours. */
async function removalRows(): Promise<Row[]> {
  const pods = 32;
  const samples = await measureRemoval(pods, Math.ceil(rounds / 5));
  const what = `devices of ${pods} pods: deleted one by one | as a group`;
  return [compare(samples, what, 'DEL', { ours: 'group', reference: 'single' }), ...floorRows(samples)];
}

async function portmapRows(): Promise<Row[]> {
  const samples = await measurePortmap(rounds);
  return SERVED.flatMap(([ours, how]) => [
    compare(samples, `portmap alone, one port, ${how}: ADD`, 'ADD', { ours, target: 0.3 }),
    compare(samples, `portmap alone, one port, ${how}: DEL`, 'DEL', { ours, target: 0.1 }),
  ]);
}

/** Both columns are ours: a node with few containers, and a full one. */
async function growthRows(): Promise<Row[]> {
  const [few, full] = [10, Number(values.full)];
  const lines: Row[] = [];
  for (const link of GROWING) {
    const samples = await measureGrowth(link, [few, full], rounds);
    for (const verb of ['ADD', 'DEL']) {
      const [small = Number.NaN, large = Number.NaN] = [few, full].map(size =>
        quantile(samples.get(`${size} ${verb}`)),
      );
      lines.push(row(`${link} ${verb}: ${few} | ${full} containers`, 'ms', small, large, 1.2));
    }
  }
  return lines;
}

/** Ours alone: whole processes, on a network with few leases and on one with hardly a free address. */
async function leaseRows(): Promise<Row[]> {
  const [few, full] = [10, 60_000];
  const [small, large] = [await measureLeases(few, rounds), await measureLeases(full, rounds)];
  return ['ADD, next', 'ADD, past all', 'ADD, after another', 'DEL'].map(part =>
    row(
      `host-local ${part}: ${few} | ${full} leases`,
      'ms',
      quantile(small.get(`${few} ${part}`)),
      quantile(large.get(`${full} ${part}`)),
    ),
  );
}

/** Both columns are ours: host-local, and an ADD in a block that the node holds. The last line is the limit and the median surplus. */
async function allocatorRows(): Promise<Row[]> {
  const lines: Row[] = [];
  for (const mode of ['without a daemon', 'with a daemon'] as AllocatorMode[]) {
    const samples = await measureAllocators(mode, rounds);
    for (const verb of ['ADD', 'DEL']) {
      const what = `${verb} of host-local | cluster, ${mode}`;
      lines.push(compare(samples, what, verb, { ours: 'cluster', reference: 'host-local' }));
    }
    // On a machine that others use, what the processor spends says more than what a clock does.
    for (const part of ['ADD', ...(mode === 'with a daemon' ? ['ADD, processor time'] : [])]) {
      const [median, low, high] = surplusOf(samples, part);
      const what = `  ${part}: surplus of cluster in the same round, ${mode} (limit 0.3)`;
      lines.push({ ...row(what, 'ms', 0.3, median, 1), spread: [low, high] });
    }
  }
  return lines;
}

/** Ours alone: throughput with one bucket for everything, or without a queue, compared with that of a tree of classes. */
async function shapingRows(): Promise<Row[]> {
  const [limited, unreached] = [await measureLimited(rounds), await measureUnreached(rounds)];
  const against = (samples: Samples, what: string, plain: string, shape: string, target?: number) =>
    (['towards', 'from'] as const).map(way => {
      const [reference, ours] = [plain, shape].map(name => quantile(samples.get(`${name} ${way}`)));
      const line = `bandwidth, ${what}, ${way} pods: ${plain} | ${shape}`;
      return row(line, 'Mb/s', reference ?? Number.NaN, ours ?? Number.NaN, target);
    });
  const trees = ['tree, limited', 'tree, not limited'];
  return [
    ...against(limited, `${LIMIT_BITS / 1e6} Mbit/s`, 'bucket', 'tree, limited', 0.97),
    ...trees.flatMap(shape => against(unreached, 'no limit', 'bucket', shape, 0.97)),
    ...trees.flatMap(shape => against(unreached, 'no limit', 'none', shape, 0.97)),
    ...against(unreached, 'no limit', 'none', 'bucket'),
  ];
}

function print(text: string): void {
  process.stdout.write(text);
}

function fail(text: string): never {
  process.stderr.write(`${text}\n`);
  process.exit(1);
}
