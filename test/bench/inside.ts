// How is the time of a chain spent, by our runner and by a runtime, and what would the ratio to the reference be if some parts took no
// time?

import type { PluginRecord, RequestRecord } from '../../src/observe/record.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { CHAIN_TARGETS, CHAIN_VERBS, type ChainVerb, RUNTIME_TARGETS } from './chain.ts';
import { differences, quantile, type Samples, settle, takeTurns, WARMUP_ROUNDS } from './measure.ts';
import { type Row, row } from './row.ts';
import { type Peer, PLUGINS, single, withSides } from './sides.ts';
import { loadingOf, versionOf, withEmptyProgram } from './start.ts';
import { type Call, callsIn, inKernel, msOf, readTraces, sum } from './traces.ts';

/** Plugins that a runtime starts: bridge calls host-local without a process. */
const STARTED = PLUGINS.filter(name => name !== 'host-local');

/**
 * One verb of the chain, by our runner cold or warm, or by a runtime that starts each plugin without a daemon: milliseconds, with
 * separate medians of each part.
 */
export interface Profile {
  readonly how: 'cold' | 'warm' | 'runtime';
  readonly verb: ChainVerb;
  readonly target: number;
  /** The whole verb of the reference's chain, and the time that its plugins' processes take to answer VERSION. */
  readonly reference: number;
  readonly referenceStarts: number;
  readonly ours: number;
  /**
   * Part of {@link ours}: cold, the process before the chain begins and after it ends; warm, the client alone; by a runtime, all
   * processes until their modules are loaded.
   */
  readonly start: number;
  /** The part of {@link start} that programs take that do nothing: as many as are started. */
  readonly empty: number;
  /** Part of {@link ours}: warm, what lies between client and chain. */
  readonly way?: number;
  /** Part of {@link ours}: requests to the kernel, from sending to the last reply. */
  readonly kernel: number;
  /** The rest of {@link ours}: runner, plugins and what these deferred. */
  readonly parts: ReadonlyMap<string, number>;
}

/** The ratio that would remain if nothing else took any time. */
export const LIMITS: Readonly<Record<string, (profile: Profile) => number>> = {
  'if only the start remained': ({ start, reference }) => start / reference,
  'if only the kernel remained': ({ kernel, reference }) => kernel / reference,
  'if only these two remained': ({ start, kernel, reference }) => (start + kernel) / reference,
  'if nothing of ours took time': ({ how, empty, kernel, reference }) =>
    ((how === 'warm' ? 0 : empty) + kernel) / reference,
};

const SIDES = [
  'reference',
  'ours',
  'traced',
  'warm',
  'answered',
  'runtime-reference',
  'runtime-ours',
] as const;

/** Measures the chain and, in turns with it, its parts. */
export async function measureInside(peer: Peer, rounds: number): Promise<Profile[]> {
  return await withEmptyProgram(empty =>
    withSides([...SIDES], peer, async runners => {
      const chains = await Promise.all(runners.map(single));
      for (const one of chains) if (one.name === 'warm') await settle(one);
      const starts = PLUGINS.map(link => versionOf(`start of ${link}`, [`${REFERENCE_BIN_DIR}/${link}`]));
      const samples = await takeTurns(
        [...chains, ...starts, ...STARTED.map(loadingOf), versionOf('empty', [empty])],
        rounds,
      );
      const profiles: Profile[] = [];
      for (const [how, side] of [
        ['cold', 'traced'],
        ['warm', 'warm'],
      ] as const) {
        const lab = runners.find(runner => runner.side === side)?.lab;
        const traces = lab ? await readTraces(lab, rounds + WARMUP_ROUNDS - 1) : [];
        for (const verb of CHAIN_VERBS) {
          const records = traces.filter(record => record.verb === verb).slice(-rounds);
          profiles.push(profileOf(how, verb, samples, records));
          if (how === 'cold') profiles.push(runtimeProfile(verb, samples, records));
        }
      }
      return profiles;
    }),
  );
}

/** The same as lines of the benchmark: our part compared with the reference's whole verb. */
export function profileRows(profiles: readonly Profile[]): Row[] {
  return profiles.flatMap(profile => {
    const { how, verb, reference, referenceStarts, ours, start, empty, way, kernel, parts } = profile;
    const between = way === undefined ? {} : { way };
    const own = {
      whole: ours,
      start,
      'empty program': empty,
      ...between,
      ...Object.fromEntries(parts),
      kernel,
    };
    const name = (part: string) => `inside, ${how}: ${verb}, ${part}`;
    return [
      row(name("bare starts of the reference's plugins"), 'ms', referenceStarts, Number.NaN),
      ...Object.entries(own).map(([part, ms]) => row(name(part), 'ms', reference, ms)),
    ];
  });
}

function profileOf(
  how: 'cold' | 'warm',
  verb: ChainVerb,
  samples: Samples,
  records: readonly RequestRecord[],
): Profile {
  const whole = (side: string, part: string = verb) => quantile(samples.get(`${side} ${part}`));
  const median = (of: (record: RequestRecord) => number) => quantile(records.map(of));
  const ours = whole(how === 'cold' ? 'ours' : 'warm');
  // Differences are taken round by round, so that other load on the machine has affected both.
  const traced = samples.get(`${how === 'cold' ? 'traced' : 'warm'} ${verb}`);
  const around = differences(traced, records.map(msOf));
  const start = how === 'cold' ? quantile(around) - tracingMs(samples) : whole('answered');
  const way = how === 'cold' ? {} : { way: quantile(differences(around, samples.get(`answered ${verb}`))) };
  const pluginNames = [...new Set(records.flatMap(({ plugins }) => plugins.map(({ type }) => type)))];
  const parts: [string, number][] = [
    ['runner', median(record => record.durationMs - sum(callsIn(record), msOf))],
    ...pluginNames.map((name): [string, number] => [
      name,
      median(({ plugins }) => sum(plugins.filter(isOf(name)), outsideKernel)),
    ]),
    ['deletion of devices, deferred', median(({ finishes = [] }) => sum(finishes, outsideKernel))],
  ];
  return {
    how,
    verb,
    target: CHAIN_TARGETS[how][verb],
    ours,
    start,
    parts: new Map(parts),
    ...way,
    empty: whole('empty', 'VERSION'),
    reference: whole('reference'),
    referenceStarts: PLUGINS.reduce((all, type) => all + whole(`start of ${type}`, 'VERSION'), 0),
    kernel: median(record => sum(callsIn(record), inKernel)),
  };
}

/** A process that a runtime starts keeps no trace; its requests to the kernel are those of the runner's chain. */
function runtimeProfile(verb: ChainVerb, samples: Samples, records: readonly RequestRecord[]): Profile {
  const whole = (side: string) => quantile(samples.get(`${side} ${verb}`));
  const version = (contestant: string) => quantile(samples.get(`${contestant} VERSION`));
  const start = sum(STARTED, name => version(`loaded ${name}`));
  const kernel = quantile(records.map(record => sum(callsIn(record), inKernel)));
  const [reference, ours] = [whole('runtime-reference'), whole('runtime-ours')];
  return {
    how: 'runtime',
    verb,
    target: RUNTIME_TARGETS.cold[verb],
    ours,
    start,
    empty: STARTED.length * version('empty'),
    reference,
    referenceStarts: sum(PLUGINS, name => version(`start of ${name}`)),
    kernel,
    parts: new Map([['plugins of a runtime', ours - start - kernel]]),
  };
}

/** The cost of keeping a trace for a process of its own, which is not part of the start. */
function tracingMs(samples: Samples): number {
  const of = (side: string, verb: string) => samples.get(`${side} ${verb}`);
  return quantile(CHAIN_VERBS.flatMap(verb => differences(of('traced', verb), of('ours', verb))));
}

function isOf(name: string): (plugin: PluginRecord) => boolean {
  return ({ type }) => type === name;
}

function outsideKernel(call: Call): number {
  return msOf(call) - inKernel(call);
}
