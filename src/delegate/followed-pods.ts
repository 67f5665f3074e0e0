// When does a daemon have the networks of a pod follow its annotation?

import { readAttachment } from '../attachments/store.ts';
import { keyOf, toId } from '../cni/attachment.ts';
import { argOf, findCniArgs, podNamedIn } from '../cni/env.ts';
import { describeError } from '../cni/errors.ts';
import { parseObject } from '../cni/json.ts';
import { convertResult, type SpecVersion } from '../cni/result.ts';
import { changesOnly, type LogFields, type LogLevel } from '../log.ts';
import { letGoFirst, makeTimers } from '../wait.ts';
import type { KubernetesPod } from './cluster.ts';
import { isAskedForSilence } from './moving.ts';
import { listPods, type PodRecord } from './record.ts';
import type { FollowCall, Pod } from './runner.ts';
import { NETWORKS_ANNOTATION } from './selection.ts';

interface FollowParts {
  readonly podsDir: string;
  /** Makes the call for a pod. @returns why it failed, if it did */
  call(follow: FollowCall, signal: AbortSignal): Promise<string | undefined>;
  /** Whether calls of clients are being served, which go first. */
  isBusy(): boolean;
  log(level: LogLevel, message: string, fields?: LogFields): void;
}

/** Between two looks at every pod, for changes that no watch reported. */
const ROUND_MS = 300_000;
/** Pause after a failure, doubled with each further one. */
const FIRST_PAUSE_MS = 5_000;
const LAST_PAUSE_MS = 300_000;
/** Changes within this time are looked at together, and longest time that they let calls go first. */
const GATHER_MS = 100;
const YIELD_MS = 2_000;
/** Between two looks whether a machine that moves has arrived, or an ADD has ended. */
const SOON_MS = 500;
/** Between two looks at the pods that are asked for silence: anyone who may change a pod can ask it without end. */
const ASKED_MS = 50;
/** Calls at the same time, and those for machines that move, which mostly wait but ask the API server all the time. */
const AT_ONCE = 2;
const MOVES_AT_ONCE = 8;

/** Looks at every pod once now, then at each that changes, and at all from time to time. */
export class FollowedPods {
  readonly #parts: FollowParts;
  readonly #end = new AbortController();
  readonly #changes = new Map<string, KubernetesPod>();
  readonly #due = new Map<string, PodRecord>();
  readonly #failures = new Map<string, { count: number; text: string; annotation: string }>();
  readonly #timers = makeTimers(this.#end.signal);
  readonly #running = new Map<string, PodRecord>();
  readonly #working = new Set<Promise<void>>();
  readonly #unlisted = changesOnly(problem =>
    this.#parts.log('warn', 'cannot look for pods whose annotation has changed', { problem }),
  );
  readonly #asked = new Set<string>();
  readonly #lookAtAll = this.#once(FIRST_PAUSE_MS, () => this.#add(this.#followed()));
  /** Whether machines that move have arrived, since the pods that they leave are on other nodes, and ADDs have ended: no watch reports that. */
  readonly #lookSoon = this.#once(SOON_MS, () => {
    this.#add(this.#followed().filter(moves));
    this.#gatherSoon();
  });
  readonly #lookAtAsked = this.#once(ASKED_MS, () => {
    for (const one of this.#followed())
      if (this.#asked.has(placeKey(one)) && one.machine) this.#start(keyOf(one.record), one);
    this.#asked.clear();
  });
  #isGathering = false;

  constructor(parts: FollowParts) {
    this.#parts = parts;
    this.#look(() => this.#round());
  }

  changed(namespace: string, name: string, pod: KubernetesPod): void {
    const place = `${namespace}/${name}`;
    this.#changes.set(place, pod);
    this.#gatherSoon();
    if (!isAskedForSilence(pod)) return;
    // Soon, beside all others: until then the machine waits for its addresses.
    this.#asked.add(place);
    this.#lookAtAsked();
  }

  /** Stops it; calls in progress are finished first. */
  async stop(): Promise<void> {
    this.#end.abort();
    this.#timers.clear();
    await Promise.all(this.#working);
  }

  #later(ms: number, work: () => void): void {
    this.#timers.later(() => this.#look(work), ms);
  }

  /** Work that lists pods. For want of descriptors or memory that may fail: every pod is looked at a little later. */
  #look(work: () => void): void {
    if (this.#end.signal.aborted) return;
    try {
      work();
    } catch (error) {
      this.#unlisted(describeError(error));
      this.#lookAtAll();
    }
  }

  /** Work that is done once, after this time, however often it is asked for until then. */
  #once(ms: number, work: () => void): () => void {
    return this.#timers.once(() => this.#look(work), ms);
  }

  #round(): void {
    this.#later(ROUND_MS * (0.9 + Math.random() / 5), () => this.#round());
    this.#add(this.#followed());
  }

  #followed(): PodRecord[] {
    const pods = listPods(this.#parts.podsDir).pods.filter(one => callOf(one) !== undefined);
    this.#unlisted(undefined);
    if (pods.some(moves)) this.#lookSoon();
    return pods;
  }

  #gatherSoon(): void {
    if (this.#isGathering) return;
    this.#isGathering = true;
    const gather = () => this.#look(() => this.#gather());
    this.#later(GATHER_MS, () => void letGoFirst(() => this.#parts.isBusy(), YIELD_MS).then(gather));
  }

  /** Looks for pods whose annotation is another one than when their networks were attached. */
  #gather(): void {
    this.#isGathering = false;
    const pods = this.#followed();
    const those = pods.filter(pod => {
      if (pod.follow === undefined) return false;
      const now = this.#changes.get(placeKey(pod));
      if (now === undefined || argOf(argsOf(pod), 'K8S_POD_UID') !== now.uid) return false;
      const text = now.annotations[NETWORKS_ANNOTATION] ?? '';
      // After a failure, the same annotation waits for its next attempt.
      return ![pod.follow.annotation, this.#failures.get(keyOf(pod.record))?.annotation].includes(text);
    });
    const settled = those.filter(({ record }) => record.phase === 'attached');
    if (settled.length < those.length) this.#lookSoon();
    this.#add(settled);
    keepOnly(this.#changes, new Set(pods.map(placeKey)));
    keepOnly(this.#failures, new Set(pods.map(({ record }) => keyOf(record))));
  }

  #add(pods: readonly PodRecord[]): void {
    for (const pod of pods) this.#due.set(keyOf(pod.record), pod);
    this.#next();
  }

  #next(): void {
    for (const [key, pod] of this.#due) {
      if (this.#end.signal.aborted) return;
      const alike = [...this.#running.values()].filter(one => moves(one) === moves(pod));
      if (this.#running.has(key) || alike.length >= (moves(pod) ? MOVES_AT_ONCE : AT_ONCE)) continue;
      this.#due.delete(key);
      this.#start(key, pod);
    }
  }

  #start(key: string, pod: PodRecord): void {
    if (this.#running.has(key)) return void this.#due.set(key, pod);
    this.#running.set(key, pod);
    const text = this.#changes.get(placeKey(pod))?.annotations[NETWORKS_ANNOTATION] ?? '';
    const work = this.#visit(key, pod, text).finally(() => {
      this.#working.delete(work);
      this.#running.delete(key);
      this.#next();
      // The annotation may have changed again during the call.
      this.#gatherSoon();
    });
    this.#working.add(work);
  }

  async #visit(key: string, pod: PodRecord, annotation: string): Promise<void> {
    const problem = await this.#callFor(pod).catch(describeError);
    if (problem === undefined) {
      this.#failures.delete(key);
      return;
    }
    const before = this.#failures.get(key);
    const count = (before?.count ?? 0) + 1;
    this.#failures.set(key, { count, text: problem, annotation });
    if (before?.text !== problem)
      this.#parts.log('warn', 'cannot change the networks of a pod', { ...toId(pod.record), problem });
    const most = Math.min(FIRST_PAUSE_MS * 2 ** (count - 1), LAST_PAUSE_MS);
    this.#later(most * (0.5 + Math.random() / 2), () => {
      if (this.#failures.get(key)?.count === count)
        this.#add(this.#followed().filter(one => keyOf(one.record) === key));
    });
  }

  async #callFor(pod: PodRecord): Promise<string | undefined> {
    const again = withResult(pod);
    return again && this.#parts.call(again, this.#end.signal);
  }
}

function keepOnly(map: Map<string, unknown>, keys: ReadonlySet<string>): void {
  for (const key of map.keys()) if (!keys.has(key)) map.delete(key);
}

/** The call, with the result by which the runner knows its interface in the namespace. @throws CniError of a damaged result */
function withResult(pod: PodRecord): FollowCall | undefined {
  const { record, cacheDir, networks } = pod;
  const [[first], call] = [networks, callOf(pod)];
  if (call === undefined || first === undefined) return undefined;
  const request = parseObject(call.stdin, 'recorded request');
  const { network, ifname } = first;
  const id = { network, containerId: record.containerId, ifname };
  const { result } = readAttachment({ cacheDir }, id) ?? {};
  if (result === undefined) return call;
  const prevResult = convertResult(result, request.cniVersion as SpecVersion, 'recorded result');
  return { env: call.env, stdin: JSON.stringify({ ...request, prevResult }) };
}

function argsOf(pod: PodRecord): Pick<Pod, 'args'> {
  return { args: findCniArgs(callOf(pod)?.env.CNI_ARGS ?? '') };
}

function callOf({ follow, machine }: PodRecord): FollowCall | undefined {
  return follow?.call ?? machine?.call;
}

function moves({ machine }: PodRecord): boolean {
  return machine?.moves === true;
}

function placeKey(pod: PodRecord): string {
  const { namespace, name } = podNamedIn(argsOf(pod)) ?? {};
  return `${namespace}/${name}`;
}
