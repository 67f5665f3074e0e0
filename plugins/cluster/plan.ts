// From which pool, and under which limits, does this configuration take addresses?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { type Result, renderRoutes } from '../../src/cni/result.ts';
import { cidrsOverlap, renderCidr } from '../../src/net/ip.ts';
import type { ChosenAddress } from '../../src/pools/lease.ts';
import { DEFAULT_BLOCK_SIZE, type Pool, parsePool } from '../../src/pools/pool.ts';
import type { Limits } from '../../src/pools/tend.ts';
import { poolsOf } from './choose-pool.ts';
import type { ClusterConf } from './config.ts';

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
    throw new CniError(ErrorCode.invalidConfig, (cause as Error).message, { cause });
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

/** The result of an ADD. */
export function planResult(addresses: readonly ChosenAddress[], { ipam }: ClusterConf): Result {
  const routes = renderRoutes(ipam.routes ?? []);
  return {
    ips: addresses.map(({ ip, prefix, gateway }) => {
      return { address: renderCidr({ ip, prefix }), ...(gateway === undefined ? {} : { gateway }) };
    }),
    ...(routes.length ? { routes } : {}),
  };
}
