// What do the metrics of a daemon count, and how are they and the traces read?
import { cniCacheDir } from '../../cni/directories.ts';
import { loadAbouts } from '../../cni/network-plugins.ts';
import type { makeBackend } from '../../daemon/backend.ts';
import type { WorkerPool } from '../../daemon/pool.ts';
import type { Server } from '../../daemon/server.ts';
import type { MetricSources } from '../../observe/metrics.ts';
import type { Observer } from '../../observe/observer.ts';
import type { CommandCall } from '../command.ts';
import { TOOL_VERSION } from '../tool-version.ts';
import { hostFactsIn } from './host-facts.ts';

/** Where the metrics get their numbers from. */
export async function sourcesOf(
  { env, plugins }: CommandCall,
  pool: WorkerPool,
  state: () => Server['state'] | undefined,
): Promise<Omit<MetricSources, 'dropped' | 'declined' | 'watch' | 'between'>> {
  const cacheDir = cniCacheDir(env);
  // The delegate runner keeps its own attachments next to those of the host's runtimes.
  const facts = hostFactsIn([cacheDir, `${cacheDir}/catena`], await loadAbouts(plugins.find, plugins.types));
  return {
    version: TOOL_VERSION,
    workers: () => ({ idle: pool.state.workers - pool.state.busy, busy: pool.state.busy }),
    waitingCalls: () => pool.state.waiting,
    requests: () => ({ running: state()?.running ?? 0, queued: state()?.queued ?? 0 }),
    attachments: () => facts().attachments,
    leaked: () => facts().leaked,
    ranges: () => facts().ranges,
    pools: () => facts().pools,
  };
}

/** What clients of the daemon can read of its observer. */
export function readingsOf({ metrics, traces }: Observer): Parameters<typeof makeBackend>[3] {
  return {
    traces,
    async metrics() {
      return new Response(await metrics.render(), { headers: { 'content-type': metrics.contentType } });
    },
  };
}
