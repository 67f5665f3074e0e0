// When does a daemon have the networks of a pod follow its annotation?

import { keyOf } from '../cni/attachment.ts';
import { findCniArgs } from '../cni/cni-args.ts';
import { describeError } from '../cni/errors.ts';
import { parseObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';
import type { SpecVersion } from '../cni/version.ts';
import { readAttachment } from '../journal/entries.ts';
import type { LogFields, LogLevel } from '../log.ts';
import { startTimer, type Timer } from '../wait.ts';
import { NETWORKS_ANNOTATION } from './annotation.ts';
import type { KubernetesPod } from './cluster.ts';
import { argOf, type Pod, placeOf } from './options.ts';
import { listPods, type PodRecord } from './record.ts';
import type { FollowCall } from './runner.ts';

/** What this needs of the daemon. */
export interface FollowParts {
  readonly podsDir: string;
  /** Makes the call for a pod. @returns why it failed, if it did */
  call(follow: FollowCall, signal: AbortSignal): Promise<string | undefined>;
  log(level: LogLevel, message: string, fields?: LogFields): void;
  readonly times?: FollowTimes;
}

/** In milliseconds. */
export interface FollowTimes {
  /** Between two looks at every pod, for changes that no watch reported. */
  readonly roundMs: number;
  /** Pause after a failure, doubled with each further one. */
  readonly backoffMs: { readonly first: number; readonly last: number };
}

const TIMES: FollowTimes = { roundMs: 300_000, backoffMs: { first: 5_000, last: 300_000 } };
/** Changes within this time are looked at together. */
const GATHER_MS = 100;
/** Calls at the same time. */
const AT_ONCE = 2;

/** Following that runs in the background. */
export interface FollowedPods {
  /** A pod is new or changed, or may be. */
  changed(namespace: string, name: string, pod: KubernetesPod): void;
  /** Stops it; calls in progress are finished first. */
  stop(): Promise<void>;
}

/** Looks at every pod once now, then at each that changes, and at all from time to time. */
export function followPods({ podsDir, call, log, times = TIMES }: FollowParts): FollowedPods {
  const end = new AbortController();
  const changes = new Map<string, KubernetesPod>();
  const due = new Map<string, PodRecord>();
  const failures = new Map<string, { count: number; text: string; annotation: string }>();
  const timers = new Set<Timer>();
  const running = new Set<string>();
  const working = new Set<Promise<void>>();
  const later = (ms: number, work: () => void): void => {
    const timer = startTimer(() => {
      timers.delete(timer);
      if (!end.signal.aborted) work();
    }, ms);
    timer.unref();
    timers.add(timer);
  };
  const followed = (): PodRecord[] => listPods(podsDir).pods.filter(({ follow }) => follow !== undefined);
  const visit = async (key: string, pod: PodRecord, annotation: string): Promise<void> => {
    const { record } = pod;
    const problem = await callFor(pod).catch(describeError);
    if (problem === undefined) {
      failures.delete(key);
      return;
    }
    const before = failures.get(key);
    const count = (before?.count ?? 0) + 1;
    failures.set(key, { count, text: problem, annotation });
    const { network, containerId, ifname } = record;
    if (before?.text !== problem)
      log('warn', 'cannot change the networks of a pod', { network, containerId, ifname, problem });
    const { first, last } = times.backoffMs;
    const most = Math.min(first * 2 ** (count - 1), last);
    later(most * (0.5 + Math.random() / 2), () => {
      if (failures.get(key)?.count === count) add(followed().filter(pod => keyOf(pod.record) === key));
    });
  };
  const callFor = async (pod: PodRecord): Promise<string | undefined> => {
    const again = withResult(pod);
    return again && call(again, end.signal);
  };
  const next = (): void => {
    for (const [key, pod] of due) {
      if (working.size >= AT_ONCE || end.signal.aborted) return;
      if (running.has(key)) continue;
      due.delete(key);
      running.add(key);
      const text = changes.get(placeKey(pod))?.annotations[NETWORKS_ANNOTATION] ?? '';
      const work = visit(key, pod, text).finally(() => {
        working.delete(work);
        running.delete(key);
        next();
        // The annotation may have changed again during the call.
        gatherSoon();
      });
      working.add(work);
    }
  };
  const add = (pods: readonly PodRecord[]): void => {
    for (const pod of pods) due.set(keyOf(pod.record), pod);
    next();
  };
  let isGathering = false;
  const gather = (): void => {
    isGathering = false;
    const pods = followed();
    const those = pods.filter(pod => {
      const now = changes.get(placeKey(pod));
      if (now === undefined || argOf(argsOf(pod), 'K8S_POD_UID') !== now.uid) return false;
      const text = now.annotations[NETWORKS_ANNOTATION] ?? '';
      const failed = failures.get(keyOf(pod.record));
      // After a failure, the same annotation waits for its next attempt.
      return text !== pod.follow?.annotation && !(failed && failed.annotation === text);
    });
    const kept = new Set(pods.map(placeKey));
    add(those);
    for (const key of changes.keys()) if (!kept.has(key)) changes.delete(key);
    const known = new Set(pods.map(({ record }) => keyOf(record)));
    for (const key of failures.keys()) if (!known.has(key)) failures.delete(key);
  };
  const gatherSoon = (): void => {
    if (isGathering) return;
    isGathering = true;
    later(GATHER_MS, gather);
  };
  const round = (): void => {
    add(followed());
    later(times.roundMs * (0.9 + Math.random() / 5), round);
  };
  round();
  return {
    changed(namespace, name, pod) {
      changes.set(`${namespace}/${name}`, pod);
      gatherSoon();
    },
    async stop() {
      end.abort();
      for (const timer of timers) clearTimeout(timer);
      await Promise.all(working);
    },
  };
}

/** The call, with the result by which the runner knows its interface in the namespace. @throws CniError of a damaged result */
function withResult({ record, cacheDir, networks, follow }: PodRecord): FollowCall | undefined {
  const [first] = networks;
  if (follow === undefined || first === undefined) return undefined;
  const request = parseObject(follow.call.stdin, 'recorded request');
  const { network, ifname } = first;
  const { result } = readAttachment(cacheDir, { network, containerId: record.containerId, ifname }) ?? {};
  if (result === undefined) return follow.call;
  const prevResult = convertResult(result, request.cniVersion as SpecVersion, 'recorded result');
  return { env: follow.call.env, stdin: JSON.stringify({ ...request, prevResult }) };
}

function argsOf({ follow }: PodRecord): Pick<Pod, 'args'> {
  return { args: findCniArgs(follow?.call.env.CNI_ARGS ?? '') };
}

function placeKey(pod: PodRecord): string {
  const { namespace, name } = placeOf(argsOf(pod)) ?? {};
  return `${namespace}/${name}`;
}
