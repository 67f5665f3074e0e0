// What is known about a finished request: what was requested, how long each plugin took, how it ended?

import type {
  FinishEvent,
  PluginEvent,
  RequestFacts,
  RequestOutcome,
  RequestWatcher,
} from '../chain/run/runtime.ts';
import type { Request } from '../cli/answers/daemon.ts';
import type { CniArgs } from '../cni/env.ts';
import { toCniError } from '../cni/errors.ts';
import { defined, type ValueOf } from '../cni/json.ts';
import { maskSecrets, maskText } from './secrets.ts';

/** The request of a caller that may have a trace of its own. */
interface TracedFacts extends RequestFacts {
  readonly traceId?: string | undefined;
  /** The request's own span, if spans are exported. */
  readonly span?: RequestSpan | undefined;
}

/** The span of a request; the first one of a trace has no parent. */
export type RequestSpan = NonNullable<ValueOf<typeof Request>['span']>;

export type PluginRecord = RequestRecord['plugins'][number];

/** A request of one of them to the kernel. */
export type TransactionRecord = NonNullable<PluginRecord['transactions']>[number];

/** The deferred removals of a network's plugins, which ran after the last plugin. */
export type FinishRecord = NonNullable<RequestRecord['finishes']>[number];

/** One finished request. Secrets are already masked. */
export type RequestRecord = Omit<ValueOf<typeof Request>, 'startedAt'> & {
  /** Unix time in milliseconds. */
  readonly startedAt: number;
};

/** A watcher that keeps a record of each request. */
export type RecordingWatcher = RequestWatcher<RequestRecord>;

interface OpenRequest {
  readonly id: string;
  /** For {@link Runtime.onPlugin}. */
  readonly onPlugin: (event: PluginEvent) => void;
  /** For {@link Runtime.onFinish}. */
  readonly onFinish: (event: FinishEvent) => void;
  /** For {@link Runtime.onTurn}: how long the chain waited for its turn. */
  readonly onTurn: (waitedMs: number) => void;
  end(outcome: RequestOutcome): RequestRecord;
}

/**
 * Number of characters of each plugin's standard error that are kept. It is masked before it is cut, since a cut may separate a
 * name from its secret.
 */
const STDERR_TAIL = 4096;

export function startRequest(facts: TracedFacts): OpenRequest {
  const startedAt = Date.now();
  const begin = performance.now();
  const id = newId(startedAt);
  const plugins: PluginRecord[] = [];
  const finishes: FinishRecord[] = [];
  const startOf = (durationMs: number): number => Math.max(0, performance.now() - begin - durationMs);
  let lockMs: number | undefined;
  return {
    id,
    onPlugin(event) {
      plugins.push(toPluginRecord(event, startOf(event.durationMs)));
    },
    onFinish(event) {
      const { durationMs } = event;
      finishes.push({ ...event, startMs: round(startOf(durationMs)), durationMs: round(durationMs) });
    },
    onTurn(waitedMs) {
      lockMs = (lockMs ?? 0) + waitedMs;
    },
    end: ({ result, error }) => ({
      id,
      ...placeOf(facts),
      startedAt,
      durationMs: round(performance.now() - begin),
      ...(facts.queueMs === undefined ? {} : { queueMs: round(facts.queueMs) }),
      ...(lockMs === undefined ? {} : { lockMs: round(lockMs) }),
      ...outcomeOf(error),
      warm: facts.by === 'daemon' || facts.by === 'runtime',
      plugins: orderStarts(plugins),
      ...(finishes.length ? { finishes } : {}),
      ...(result === undefined ? {} : { result: maskSecrets(result) }),
      ...defined({ span: facts.span }),
    }),
  };
}

function toPluginRecord(event: PluginEvent, startMs: number): PluginRecord {
  const { network, plugin: type, index, executable, verb, stderr, result, error, span, transactions } = event;
  return {
    ...{ network, type, index, executable, verb },
    startMs: round(startMs),
    durationMs: round(event.durationMs),
    ...outcomeOf(error),
    ...(stderr === '' ? {} : { stderr: maskText(stderr.slice(-2 * STDERR_TAIL)).slice(-STDERR_TAIL) }),
    ...(result === undefined ? {} : { result: maskSecrets(result) }),
    ...defined({ span, transactions }),
  };
}

function placeOf({ verb, network, containerId, ifname, netns, args = [], traceId }: TracedFacts) {
  const named: Record<string, string> = Object.fromEntries(args);
  return {
    ...defined({ traceId }),
    verb,
    network,
    containerId,
    ifname,
    netns,
    ...podOf(args),
    ...(args.length ? { args: maskSecrets(named) } : {}),
  };
}

/** A failure to which no code of the protocol belongs, as 0 would read as success. */
export const FAILED_WITHOUT_CODE = 999;

/** How a request or a plugin ended; code 0 means success here, whereas the protocol uses it for failures of the runtime. @param error as thrown */
export function outcomeOf(error: unknown): Pick<PluginRecord, 'code' | 'message' | 'details'> {
  if (error === undefined) return { code: 0 };
  const { code, message, details } = toCniError(error);
  return {
    code: code || FAILED_WITHOUT_CODE,
    message: maskText(message),
    ...(details === undefined ? {} : { details: maskText(details) }),
  };
}

/** Eight characters of time and four random ones, in base 36. */
function newId(startedAt: number): string {
  const chance = crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
  return startedAt.toString(36).padStart(8, '0') + (chance % 36 ** 4).toString(36).padStart(4, '0');
}

function round(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/** When a plugin of a chain ran. */
type Called = Pick<PluginRecord, 'network' | 'verb' | 'startMs' | 'durationMs'>;

/**
 * A start is the time at which an answer was read, less the plugin's own time, so an answer that waited makes its plugin appear later
 * than it was, even later than the next one. Plugins of a chain run one after the other: each must have ended when the next one
 * started.
 * @param plugins in the order of their answers
 */
export function orderStarts<T extends Called>(plugins: readonly T[]): T[] {
  const next = new Map<string, number>();
  return plugins
    .toReversed()
    .map(plugin => {
      const chain = `${plugin.verb} ${plugin.network}`;
      const latest = (next.get(chain) ?? Infinity) - plugin.durationMs;
      const startMs = Math.max(0, Math.min(plugin.startMs, latest));
      next.set(chain, startMs);
      return { ...plugin, startMs: round(startMs) };
    })
    .toReversed();
}

/** Name and namespace as the kubelet's runtimes pass them; podman passes the container's name as that of a pod. */
export function podOf(args: CniArgs): { readonly podNamespace?: string; readonly podName?: string } {
  const named: Partial<Record<string, string>> = Object.fromEntries(args);
  return defined({ podNamespace: named.K8S_POD_NAMESPACE, podName: named.K8S_POD_NAME });
}
