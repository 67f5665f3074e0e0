// From which pool, and under which limits, does this configuration take addresses?

import { findCniArgs } from '../../src/cni/env.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import { type Result, renderRoutes } from '../../src/cni/result.ts';
import { cidrsOverlap, renderCidr } from '../../src/net/ip.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { ChosenAddress } from '../../src/pools/lease.ts';
import { DEFAULT_BLOCK_SIZE, type Pool, type PoolSpec, parsePool } from '../../src/pools/pool.ts';
import type { Limits } from '../../src/pools/tend.ts';
import { ANNOTATIONS, type ClusterConf } from './config.ts';

// The pod's annotation decides, then its namespace, then `pool`. An annotation may only name what the configuration lists: who creates
// pods does not choose among all pools of the cluster.

const POOL_ANNOTATION = 'catena.cni.cncf.io/pool';

const DEFAULT_POOL = 'default';

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
    throw invalidConfig(
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

const DEFAULT_COOL_DOWN_S = 300;
/** Several times the interval at which a node looks after its blocks, and says that it is there. */
const DEFAULT_GRACE_S = 3600;
const LEAST_GRACE_S = 1800;
/** A block is claimed in milliseconds, so an eighth of a block lasts for any burst of pods until it is there. */
const LOW_WATER_SHARE = 8;

/** What the node keeps. Single addresses are claimed when they are needed, and go back at once. */
export function limitsOf({ ipam }: ClusterConf, blockSize = ipam.blockSize ?? DEFAULT_BLOCK_SIZE): Limits {
  const isSingle = blockSize === 1;
  return {
    lowWater: ipam.lowWater ?? (isSingle ? 0 : Math.ceil(blockSize / LOW_WATER_SHARE)),
    coolDownS: ipam.coolDown ?? (isSingle ? 0 : DEFAULT_COOL_DOWN_S),
    graceS: ipam.grace ?? DEFAULT_GRACE_S,
  };
}

/**
 * Refuses a configuration that can never work.
 * @throws CniError 7
 */
export function refuseUnusable(conf: ClusterConf): void {
  const { kubeconfig, lowWater = 0, coolDown = 0, grace = LEAST_GRACE_S, timeout = 1, keep = 0 } = conf.ipam;
  const pools = poolsOf(conf);
  const parsed: Pool[] = [];
  try {
    for (const [i, { name, spec }] of pools.entries()) {
      if (pools.slice(0, i).some(other => other.name === name))
        throw new Error(`Cannot allocate addresses: "pools" has "${name}" twice`);
      const pool = spec && parsePool(name, spec);
      if (pool) refuseOverlap(pool, parsed);
      if (pool) parsed.push(pool);
      if (pool === undefined && !kubeconfig)
        throw new Error(
          `Cannot allocate addresses: give "subnets" of pool "${name}", or "kubeconfig" for a cluster with that pool`,
        );
    }
    if (grace < LEAST_GRACE_S) {
      throw new Error(
        `Cannot allocate addresses: "grace" must be ${LEAST_GRACE_S} at least, since a node looks after its blocks every ten minutes`,
      );
    }
    if (lowWater < 0 || coolDown < 0 || keep < 0 || timeout < 1) {
      throw new Error(
        'Cannot allocate addresses: "lowWater", "coolDown" and "keep" must not be negative, "timeout" be 1 at least',
      );
    }
  } catch (cause) {
    throw invalidConfig((cause as Error).message, { cause });
  }
}

function refuseOverlap(pool: Pool, others: readonly Pool[]): void {
  const cidrsIn = ({ subnets }: Pool) => subnets.flatMap(({ families }) => families.map(({ cidr }) => cidr));
  const other = others.find(one => cidrsIn(one).some(a => cidrsIn(pool).some(b => cidrsOverlap(a, b))));
  if (other)
    throw new Error(
      `Cannot allocate addresses: pools "${other.name}" and "${pool.name}" overlap: addresses would be handed out twice`,
    );
}

export function planResult(addresses: readonly ChosenAddress[], { ipam }: ClusterConf): Result {
  const routes = renderRoutes(ipam.routes ?? []);
  return {
    ips: addresses.map(({ ip, prefix, gateway }) => {
      return { address: renderCidr({ ip, prefix }), ...(gateway === undefined ? {} : { gateway }) };
    }),
    ...(routes.length ? { routes } : {}),
  };
}
