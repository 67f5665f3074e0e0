// What is the time of a chain made of, and which ratio to the reference would be left if some of that took no time?
import type { LinkRecord, RequestRecord } from '../../src/observe/record.ts';
import { listTraces } from '../../src/observe/trace-ring.ts';
import { directories, type Lab } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { CHAIN_TARGETS, CHAIN_VERBS, type ChainVerb } from './chain.ts';
import { quantile, type Samples, settle, takeTurns } from './measure.ts';
import { type Row, row } from './row.ts';
import { LINKS, type Peer, single, withSides } from './sides.ts';
import { versionOf, withEmptyProgram } from './start.ts';

/** One verb of the chain, cold or warm: milliseconds, medians of each part by itself. */
export interface Profile {
  readonly how: 'cold' | 'warm';
  readonly verb: ChainVerb;
  readonly target: number;
  /** The whole verb of the reference's chain, and of it what its plugins' processes take to answer VERSION. */
  readonly reference: number;
  readonly referenceStarts: number;
  readonly ours: number;
  /** Of {@link ours}: cold, the process before the chain begins and after it ends; warm, the client alone. */
  readonly start: number;
  /** What of {@link start} a program takes that does nothing. */
  readonly empty: number;
  /** Of {@link ours}: warm, what lies between client and chain. */
  readonly way?: number;
  /** Of {@link ours}: requests to the kernel, from sending to the last answer. */
  readonly kernel: number;
  /** The rest of {@link ours}: runner, links and what these put off. */
  readonly parts: ReadonlyMap<string, number>;
}

/** What would be left of the ratio if nothing but this took any time. */
export const LIMITS: Readonly<Record<string, (profile: Profile) => number>> = {
  'if only the start remained': ({ start, reference }) => start / reference,
  'if only the kernel remained': ({ kernel, reference }) => kernel / reference,
  'if only these two remained': ({ start, kernel, reference }) => (start + kernel) / reference,
};

/** Measures the chain and, in turns with it, what its time is made of. */
export async function measureInside(peer: Peer, rounds: number): Promise<Profile[]> {
  return await withEmptyProgram(empty =>
    withSides(['reference', 'ours', 'traced', 'warm', 'answered'], peer, async runners => {
      const chains = await Promise.all(runners.map(single));
      for (const one of chains) if (one.name === 'warm') await settle(one);
      const starts = LINKS.map(link => versionOf(`start of ${link}`, [`${REFERENCE_BIN_DIR}/${link}`]));
      const samples = await takeTurns([...chains, ...starts, versionOf('empty', [empty])], rounds);
      const tracesOf = (side: string) =>
        runners.flatMap(runner => (runner.side === side ? readTraces(runner.lab) : []));
      const traces = { cold: tracesOf('traced'), warm: tracesOf('warm') };
      return (['cold', 'warm'] as const).flatMap(how =>
        CHAIN_VERBS.map(verb => {
          const records = traces[how].filter(record => record.verb === verb).slice(-rounds);
          return profileOf(how, verb, samples, records);
        }),
      );
    }),
  );
}

/** The same as lines of the benchmark: our part next to the reference's whole verb. */
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

/** The oldest first. */
function readTraces({ tmp }: Lab): RequestRecord[] {
  return listTraces(`${directories(tmp).CATENA_RUN_DIR}/traces`).records;
}

function profileOf(
  how: 'cold' | 'warm',
  verb: ChainVerb,
  samples: Samples,
  records: readonly RequestRecord[],
): Profile {
  if (records.length === 0)
    throw new Error(`Cannot tell what ${how} ${verb} is made of: there are no traces`);
  const whole = (side: string, part: string = verb) => quantile(samples.get(`${side} ${part}`));
  const median = (of: (record: RequestRecord) => number) => quantile(records.map(of));
  const ours = whole(how === 'cold' ? 'ours' : 'warm');
  const request = median(({ durationMs }) => durationMs);
  const start = how === 'cold' ? ours - request : whole('answered');
  const way = how === 'cold' ? {} : { way: ours - start - request };
  const linkNames = [...new Set(records.flatMap(({ links }) => links.map(({ link }) => link)))];
  const parts: [string, number][] = [
    ['runner', median(record => record.durationMs - sum(callsIn(record), msOf))],
    ...linkNames.map((name): [string, number] => [
      name,
      median(({ links }) => sum(links.filter(isOf(name)), outsideKernel)),
    ]),
    ['deletion of devices, put off', median(({ finishes = [] }) => sum(finishes, outsideKernel))],
  ];
  return {
    ...{ how, verb, target: CHAIN_TARGETS[how][verb], ours, start, parts: new Map(parts) },
    ...{ ...way, empty: whole('empty', 'VERSION') },
    reference: whole('reference'),
    referenceStarts: LINKS.reduce((all, link) => all + whole(`start of ${link}`, 'VERSION'), 0),
    kernel: median(record => sum(callsIn(record), inKernel)),
  };
}

/** A call of a link, or what links had put off. */
type Call = Pick<LinkRecord, 'durationMs' | 'transactions'>;

function callsIn({ links, finishes = [] }: RequestRecord): Call[] {
  return [...links, ...finishes];
}

function isOf(name: string): (link: LinkRecord) => boolean {
  return ({ link }) => link === name;
}

function msOf({ durationMs }: Pick<Call, 'durationMs'>): number {
  return durationMs;
}

function inKernel({ transactions = [] }: Call): number {
  return sum(transactions, msOf);
}

function outsideKernel(call: Call): number {
  return msOf(call) - inKernel(call);
}

function sum<T>(all: readonly T[], of: (one: T) => number): number {
  return all.reduce((total, one) => total + of(one), 0);
}
