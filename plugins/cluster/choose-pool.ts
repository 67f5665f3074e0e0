// From which of several pools does an attachment get its addresses?
//
// The pod's annotation decides, then its namespace, then `pool`. An annotation may only name what the configuration lists: who creates
// pods does not choose among all pools of the cluster.
import { findCniArgs } from '../../src/cni/env.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { PoolSpec } from '../../src/pools/pool.ts';
import { ANNOTATIONS, type ClusterConf } from './config.ts';

/** The annotation by which a pod names its pool. */
export const POOL_ANNOTATION = 'catena.cni.cncf.io/pool';

const DEFAULT_POOL = 'default';

/** A pool as the configuration has it. */
export interface ConfiguredPool {
  readonly name: string;
  /** Undefined if only the cluster defines it. */
  readonly spec: PoolSpec | undefined;
  readonly namespaces: readonly string[];
}

/** All pools of the network, the one for everything else first. */
export function poolsOf({ ipam }: ClusterConf): [ConfiguredPool, ...ConfiguredPool[]] {
  const further = (ipam.pools ?? []).map(one => {
    return { name: one.pool, spec: specOf(one), namespaces: one.namespaces ?? [] };
  });
  return [{ name: ipam.pool || DEFAULT_POOL, spec: specOf(ipam), namespaces: [] }, ...further];
}

/**
 * The pool of an attachment.
 * @throws CniError 7 when its pod names one that the configuration does not list
 */
export function choosePool(call: Pick<Call, 'environment'>, conf: ClusterConf): ConfiguredPool {
  const pools = poolsOf(conf);
  const named = conf.runtimeConfig?.[ANNOTATIONS]?.[POOL_ANNOTATION];
  if (named !== undefined) {
    const found = pools.find(({ name }) => name === named);
    if (found) return found;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use pool ${JSON.stringify(named)} of annotation "${POOL_ANNOTATION}": the network has ${pools.map(({ name }) => `"${name}"`).join(', ')}`,
    );
  }
  const namespace = argOf(call, 'K8S_POD_NAMESPACE');
  const own = pools.find(({ namespaces }) => namespaces.some(pattern => matches(pattern, namespace)));
  return own ?? pools[0];
}

/** The last value of an argument of CNI_ARGS; empty without one. */
export function argOf({ environment }: Pick<Call, 'environment'>, key: string): string {
  return findCniArgs(environment.CNI_ARGS ?? '').findLast(([name]) => name === key)?.[1] ?? '';
}

function matches(pattern: string, namespace: string): boolean {
  if (namespace === '') return false;
  return pattern.endsWith('*') ? namespace.startsWith(pattern.slice(0, -1)) : namespace === pattern;
}

type Members = Pick<ClusterConf['ipam'], 'subnets' | 'blockSize' | 'layout' | 'gateways' | 'exclude'>;

function specOf({ subnets, blockSize, layout, gateways, exclude }: Members): PoolSpec | undefined {
  return subnets && { subnets, blockSize, layout, gateways, exclude };
}
