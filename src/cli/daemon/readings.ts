// What do the metrics of a daemon count, and how are they and the traces read?
import { type Conflist, parseNetwork } from '../../chain/config/conflist.ts';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import { attempt } from '../../cni/errors.ts';
import { type FindAbout, loadAbouts, seenPoolsOf } from '../../cni/plugin-about.ts';
import type { makeBackend } from '../../daemon/backend.ts';
import { listenForMetrics, type MetricsAddress, parseMetricsAddress } from '../../daemon/metrics-listener.ts';
import type { WorkerPool } from '../../daemon/pool.ts';
import { rangeUsesOf } from '../../ipam/range-use.ts';
import { readRecords } from '../../node/facts.ts';
import type { MetricSources } from '../../observe/metrics.ts';
import type { Observer } from '../../observe/observer.ts';
import { findGone } from '../../watch/collect-gone.ts';
import { type CommandCall, TOOL_VERSION, UsageError } from '../command.ts';
import { runtimeOf } from '../target.ts';

export async function sourcesOf(
  call: CommandCall,
  pool: WorkerPool,
): Promise<Omit<MetricSources, 'dropped' | 'declined' | 'watch' | 'between'>> {
  const { plugins } = call;
  const facts = hostFactsOf(runtimeOf(call), await loadAbouts(plugins.find, plugins.types));
  return {
    version: TOOL_VERSION,
    workers: () => ({ idle: pool.state.workers - pool.state.busy, busy: pool.state.busy }),
    requests: () => ({ running: pool.state.running, queued: pool.state.queued }),
    attachments: () => facts().attachments,
    leaked: () => facts().leaked,
    ranges: () => facts().ranges,
    pools: () => facts().pools,
  };
}

/** What clients of the daemon can read of its observer. */
export function readingsOf(observer: Observer): Parameters<typeof makeBackend>[3] {
  return {
    traces: id => observer.traces(id),
    async metrics() {
      const { metrics } = observer;
      return new Response(await metrics.render(), { headers: { 'content-type': metrics.contentType } });
    },
  };
}

/**
 * What serves metrics at the address of `--metrics`, now or once it is free, and returns a function that stops this; undefined without an
 * address.
 * @throws UsageError for one that cannot be used
 */
export function metricsListenerOf(call: CommandCall) {
  const at = call.text('metrics');
  if (at === undefined) return undefined;
  let address: MetricsAddress;
  try {
    address = parseMetricsAddress(at);
  } catch (cause) {
    throw new UsageError((cause as Error).message, { cause });
  }
  return (metrics: Observer['metrics']) =>
    listenForMetrics(address, metrics, {
      failing: problem => call.err(`catena: warning: cannot serve metrics at ${at} yet: ${problem}\n`),
      listening: () => call.err(`catena: metrics at ${at}\n`),
    });
}

/** A page consists of several metrics, and frequent requests must not read all files each time. */
const KEEP_MS = 5_000;

/**
 * Returns a function that reads the records of the node, at most once in five seconds.
 * @param findAbout what is known about the plugins, from which the ranges are taken
 */
function hostFactsOf(runtime: ChainRuntime, findAbout: FindAbout) {
  let known: ReturnType<typeof look> | undefined;
  let knownAt = 0;
  return () => {
    if (known === undefined || performance.now() - knownAt > KEEP_MS) {
      known = look(runtime, findAbout);
      knownAt = performance.now();
    }
    return known;
  };
}

function look(runtime: ChainRuntime, findAbout: FindAbout) {
  const { standing } = readRecords(runtime);
  const attachments = new Map<string, number>();
  for (const { network } of standing) attachments.set(network, (attachments.get(network) ?? 0) + 1);
  // The attachments of a network usually share one conflist. If it was changed in between, the last one counts.
  const lists = new Map(
    standing.flatMap(({ network, source }) => (source ? [[network, source] as const] : [])),
  );
  // Of a conflist that is outdated, no number is better than a wrong one.
  const inLists = <T>(find: (list: Conflist) => readonly T[]): T[] =>
    [...lists.values()].flatMap(source => attempt(() => find(parseNetwork(source))) ?? []);
  return {
    attachments,
    // Attachments whose namespace is gone and whose DEL never ran.
    leaked: findGone(standing, runtime).filter(({ isSure }) => isSure).length,
    ranges: inLists(list => rangeUsesOf(list, findAbout)),
    // Pools of a whole cluster, as this node saw them last.
    pools: inLists(list => seenPoolsOf(list, findAbout).map(pool => ({ network: list.name, ...pool }))),
  };
}
