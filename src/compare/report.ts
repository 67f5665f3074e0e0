// What does the final report contain: each difference once, by plugin, with its other scenes, and the plugins' times?
import type { Conflist } from '../chain/config/conflist.ts';
import { type Crossing, isCrossing, reportCrossings } from './crossings.ts';
import { type Difference, diffRecords } from './differ.ts';
import type { SceneRecord } from './record.ts';

/** A scene as both twins played it, with names normalised to common ones. */
export interface PlayedScene {
  readonly name: string;
  readonly first: SceneRecord;
  readonly second: SceneRecord;
}

/** A difference, with the other scenes in which it also appeared. */
export interface ReportedDifference extends Difference {
  readonly alsoIn: readonly string[];
}

/** What is known about one plugin, or with index -1 about whole steps. */
export interface PluginReport {
  readonly index: number;
  readonly link: string;
  readonly differences: readonly ReportedDifference[];
  /** Median milliseconds by command. */
  readonly times: Readonly<Record<string, { readonly first: number; readonly second: number }>>;
}

/** The outcome of a comparison. */
export interface CompareReport {
  readonly network: string;
  /** True when the chain works and shows no difference. */
  readonly same: boolean;
  /** Plugins whose ADD never succeeds on either side: a common failure cannot be compared. */
  readonly failing: readonly { readonly index: number; readonly link: string; readonly message: string }[];
  readonly scenes: readonly string[];
  readonly links: readonly PluginReport[];
  /** How one set of executables finished what the other began. */
  readonly crossings: readonly Crossing[];
}

/**
 * Judges all scenes.
 * @param ignored intended differences, matched against their lines
 */
export function reportOn(
  list: Conflist,
  scenes: readonly PlayedScene[],
  ignored: readonly RegExp[],
): CompareReport {
  const found = scenes.flatMap(({ name, first, second }) => diffRecords(name, first, second));
  const counted = once(found).filter(one => !ignored.some(pattern => pattern.test(lineOf(one))));
  // In crossings, both sides run ADD with the same executables.
  const ordinary = scenes.filter(({ name }) => !isCrossing(name));
  const names = [...list.plugins.map(({ type }) => type), 'the chain as a whole'];
  const reports = names.map((name, at): PluginReport => {
    const index = at < list.plugins.length ? at : -1;
    return {
      index,
      link: name,
      differences: counted.filter(one => (one.index ?? -1) === index),
      times: index < 0 ? {} : timesOf(index, ordinary),
    };
  });
  const failing = list.plugins.flatMap(({ type }, index) => {
    const message = findFailure(index, scenes);
    return message === undefined ? [] : [{ index, link: type, message }];
  });
  return {
    network: list.name,
    same: counted.length === 0 && failing.length === 0,
    failing,
    scenes: scenes.map(({ name }) => name),
    links: reports,
    crossings: reportCrossings(list, scenes),
  };
}

/** The message of a plugin's ADD if it fails every time on both sides. */
function findFailure(index: number, scenes: readonly PlayedScene[]): string | undefined {
  const answers = scenes
    .flatMap(({ first, second }) => [...first.moments, ...second.moments])
    .filter(moment => moment.index === index && moment.verb === 'ADD')
    .map(({ answer }) => answer);
  if (answers.length === 0 || answers.some(({ failed }) => !failed)) return undefined;
  return answers[0]?.message ?? 'no message';
}

/** A difference on one line, for matching. */
function lineOf({ verb, where, what, first, second }: Difference): string {
  const subject = [where, what].filter(Boolean).join(': ');
  return `${verb}: ${subject}: ${first ?? 'nothing'} | ${second ?? 'nothing'}`;
}

/** A plugin does the same in most scenes, so a difference is reported only where it first appeared. */
function once(differences: readonly Difference[]): ReportedDifference[] {
  const byLine = new Map<string, ReportedDifference>();
  for (const one of differences) {
    const key = `${one.index} ${lineOf(one)}`;
    const known = byLine.get(key);
    if (known === undefined) byLine.set(key, { ...one, alsoIn: [] });
    else if (one.scene !== known.scene && !known.alsoIn.includes(one.scene))
      byLine.set(key, { ...known, alsoIn: [...known.alsoIn, one.scene] });
  }
  // The failed answer of a step repeats its plugin's.
  const ofPlugins = [...byLine.values()].filter(({ index }) => index !== undefined);
  return [...byLine.values()].filter(one => {
    if (one.index !== undefined || one.where !== 'answer') return true;
    return !ofPlugins.some(({ scene, step, where }) => {
      return scene === one.scene && step === one.step && where === 'answer';
    });
  });
}

function timesOf(index: number, scenes: readonly PlayedScene[]): PluginReport['times'] {
  const collect = (record: SceneRecord, into: Map<string, number[]>) => {
    for (const moment of record.moments) {
      if (moment.index !== index || moment.answer.failed) continue;
      into.set(moment.verb, [...(into.get(moment.verb) ?? []), moment.durationMs]);
    }
  };
  const [first, second] = [new Map<string, number[]>(), new Map<string, number[]>()];
  for (const scene of scenes) {
    collect(scene.first, first);
    collect(scene.second, second);
  }
  const both = [...first.keys()].filter(verb => second.has(verb));
  return Object.fromEntries(
    both.map(verb => [verb, { first: median(first.get(verb)), second: median(second.get(verb)) }]),
  );
}

function median(values: readonly number[] = []): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}
