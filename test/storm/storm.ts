// How are many seeds run on several nodes at a time, and what did they find?

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PREFIX, sweepLeftovers } from '../helpers/namespace.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import type { History, NodeReport } from './history.ts';
import { type Shrunk, shrink } from './shrink.ts';
import { runNode } from './spawn-node.ts';
import { count, type Tally } from './tally.ts';

// A line of progress is printed no more often than this.
const PROGRESS_SECONDS = 30;

/** How much, and of what. */
export interface StormPlan {
  readonly seeds: readonly number[];
  /** Actions of each seed. */
  readonly steps: number;
  /** Longest time for one seed. */
  readonly secondsPerSeed: number;
  /** No further seed is begun after so many minutes. */
  readonly minutes: number;
  readonly nodes: number;
  readonly without: readonly string[];
  /** Time to make one violation's history shorter; 0 leaves it as it is. */
  readonly shrinkSeconds: number;
  /** No further seed is begun once this many different rules were broken. */
  readonly stopAfter: number;
  /** Directory of the executables; those of the last build unless given. */
  readonly binDir?: string | undefined;
  /** Shows what happened before each violation. */
  readonly verbose?: boolean;
  /** Told of every run that found something. */
  readonly keep?: (report: NodeReport) => void;
  readonly say?: (line: string) => void;
}

/** A rule that was broken, and how. */
export interface Finding {
  readonly rule: string;
  readonly seeds: readonly number[];
  /** Actions and seconds of the whole storm until it was found first. */
  readonly afterSteps: number;
  readonly afterSeconds: number;
  readonly first: NodeReport;
  readonly shrunk: Shrunk | undefined;
}

/** What a storm did and found. */
export interface StormReport {
  readonly seeds: number;
  readonly steps: number;
  readonly rounds: number;
  readonly seconds: number;
  readonly kinds: Readonly<Tally>;
  readonly findings: readonly Finding[];
}

/** Runs the seeds. Everything that it makes is gone afterwards, also when the signal ends it. */
export async function runStorm(plan: StormPlan, signal: AbortSignal): Promise<StormReport> {
  return withRoot(plan.binDir, root => storm(plan, root, signal));
}

/** Runs one history, as often as asked until something is violated. */
export async function replay(
  history: History,
  {
    times,
    binDir,
    signal,
  }: { readonly times: number; readonly binDir?: string | undefined; readonly signal: AbortSignal },
): Promise<NodeReport | undefined> {
  return withRoot(binDir, async root => {
    let last: NodeReport | undefined;
    for (let i = 0; i < times && !signal.aborted; i++) {
      const { seed, rounds } = history;
      last = await runNode({ root, seed, steps: 0, seconds: 600, without: [], rounds }, { signal });
      if (last?.violations.length) break;
    }
    return last;
  });
}

async function storm(plan: StormPlan, root: string, signal: AbortSignal): Promise<StormReport> {
  const started = performance.now();
  const seconds = (): number => (performance.now() - started) / 1000;
  const { steps, secondsPerSeed, without, say = () => {} } = plan;
  const queue = [...plan.seeds];
  const kinds: Tally = {};
  const found = new Map<
    string,
    { seeds: number[]; afterSteps: number; afterSeconds: number; first: NodeReport }
  >();
  const total = { seeds: 0, steps: 0, rounds: 0 };
  const isOver = () => signal.aborted || seconds() > plan.minutes * 60 || found.size >= plan.stopAfter;

  let toldAt = 0;
  const tellProgress = (): void => {
    if (seconds() - toldAt < PROGRESS_SECONDS) return;
    toldAt = seconds();
    const rate = (total.steps / toldAt).toFixed(1);
    say(`${toldAt.toFixed(0)} s: ${total.seeds} seeds, ${total.steps} steps, ${rate} per second`);
  };

  const take = (report: NodeReport): void => {
    total.seeds += 1;
    total.steps += report.steps;
    total.rounds += report.rounds;
    for (const [kind, of] of Object.entries(report.kinds)) count(kinds, kind, of);
    tellProgress();
    const [violation] = report.violations;
    if (violation === undefined) return;
    const known = found.get(violation.rule);
    plan.keep?.(report);
    if (plan.verbose) for (const line of report.log) say(line);
    say(`seed ${report.seed}, after ${report.steps} steps: ${violation.rule}: ${violation.text}`);
    if (known) known.seeds.push(report.seed);
    else {
      const when = { afterSteps: total.steps, afterSeconds: seconds() };
      found.set(violation.rule, { seeds: [report.seed], ...when, first: report });
    }
  };
  const work = async (): Promise<void> => {
    for (let seed = queue.shift(); seed !== undefined && !isOver(); seed = queue.shift()) {
      const left = Math.max(5, plan.minutes * 60 - seconds());
      const order = { root, seed, steps, seconds: Math.min(secondsPerSeed, left), without };
      const report = await runNode(order, { signal });
      if (report) take(report);
    }
  };
  await Promise.all(Array.from({ length: plan.nodes }, work));
  const ran = seconds();
  const findings: Finding[] = [];
  for (const [rule, { first, ...rest }] of found) {
    const shrunk = plan.shrinkSeconds > 0 ? await shrink(first, root, { ...plan, signal }) : undefined;
    findings.push({ rule, ...rest, first, shrunk });
  }
  return { ...total, seconds: ran, kinds, findings };
}

async function withRoot<T>(binDir: string | undefined, body: (root: string) => Promise<T>): Promise<T> {
  await sweepLeftovers();
  const root = fs.mkdtempSync(path.join(os.tmpdir(), `${PREFIX}${process.pid}-storm-`));
  const sweep = (): void => fs.rmSync(root, { recursive: true, force: true });
  process.once('exit', sweep);
  try {
    for (const build of ['A', 'B']) copyBuild(binDir ?? BIN_DIR, `${root}/${build}`);
    return await body(root);
  } finally {
    sweep();
    process.removeListener('exit', sweep);
  }
}

/** Names that are one file stay one file: a plugin is ours by that. */
function copyBuild(from: string, to: string): void {
  fs.mkdirSync(to);
  const copied = new Map<number, string>();
  for (const name of fs.readdirSync(from)) {
    const { ino } = fs.statSync(`${from}/${name}`);
    const first = copied.get(ino);
    if (first) fs.linkSync(first, `${to}/${name}`);
    else fs.copyFileSync(`${from}/${name}`, `${to}/${name}`);
    copied.set(ino, first ?? `${to}/${name}`);
  }
}
