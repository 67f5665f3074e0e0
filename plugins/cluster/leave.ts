// What becomes of this node's blocks when Catena leaves it?
import { settle } from '../../src/pools/claim.ts';
import { readHeld } from '../../src/pools/held.ts';
import { type Claimant, claiming } from '../../src/pools/place.ts';
import { giveBack } from '../../src/pools/tend.ts';
import { claimantOf } from './claimant.ts';
import type { ClusterConf } from './config.ts';

const DEADLINE_MS = 30_000;

/**
 * Gives back every block without a lease: nothing else frees the blocks of a node that the cluster goes on to have.
 * @returns their names
 * @throws CniError 11 when the store cannot be reached
 */
export async function giveBackAll(conf: ClusterConf, network: string, dryRun: boolean): Promise<string[]> {
  const claimant = await claimantOf({ conf, network, environment: process.env }, conf);
  const names = (readHeld(claimant.dir)?.blocks ?? []).map(({ name }) => name);
  if (names.length === 0 || dryRun) return names;
  const left = await giveBackAllOf(claimant, DEADLINE_MS);
  if (left.length)
    throw new Error(
      `Cannot give back ${left.join(', ')} of network "${network}": addresses of them are leased`,
    );
  return names;
}

/**
 * Gives back what it can.
 * @returns names of blocks with leases
 * @throws CniError 11 when the store cannot be reached
 */
export function giveBackAllOf(claimant: Claimant, deadlineMs: number): Promise<string[]> {
  return claiming(claimant, performance.now() + deadlineMs, async () => {
    await settle(claimant);
    // What is kept for a name or a claim is kept by a node, and this one goes.
    await giveBack(claimant, () => ({ lowWater: 0, coolDownS: 0 }), { endsKept: true });
    return (readHeld(claimant.dir)?.blocks ?? []).map(({ name }) => name);
  });
}
