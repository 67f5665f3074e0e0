// Does an attachment still have the lease that ADD reported?
import { stateDir } from '../../src/cni/directories.ts';
import type { Call } from '../../src/plugin/define.ts';
import { bootClock } from '../../src/upkeep/boot-clock.ts';
import { identityOf, isStillSame } from '../../src/upkeep/identity.ts';
import type { CommonState } from './give-back.ts';
import { stageOf } from './plan.ts';
import { attachmentOf, findRecord, type LeaseKind } from './record.ts';

/**
 * @param what `a lease`
 * @param reported addresses of the result with their prefixes; undefined if there is no result
 * @param addressOf the address of the lease, as a result has it
 * @throws Error when the attachment has no lease, or not the one that ADD reported
 */
export function checkLease<S extends CommonState>(
  call: Call,
  kind: LeaseKind<S>,
  what: string,
  reported: readonly string[] | undefined,
  addressOf: (state: S) => string,
): void {
  const record = findRecord(call, kind);
  if (record === undefined)
    throw new Error(
      `Cannot find ${what} of "${call.env.ifname}" in "${stateDir(call.environment)}"; run DEL and ADD`,
    );
  const { state } = record;
  const { address } = state.lease;
  const now = identityOf(call.environment, attachmentOf(call), call.env.netns);
  if (!isStillSame(record.note, now))
    throw new Error(
      `Cannot confirm the lease of ${address}: it is of an earlier attachment of that name; run DEL and ADD`,
    );
  if (state.withdrawn || stageOf(state.lease, bootClock()) === 'expired')
    throw new Error(
      `Cannot confirm the lease of ${address}: it has ended, and no server has granted another`,
    );
  if (reported && !reported.includes(addressOf(state)))
    throw new Error(
      `Cannot confirm the lease of ${state.reported ?? reported.join(', ')}: the server has replaced it by ${address}; run DEL and ADD`,
    );
}
