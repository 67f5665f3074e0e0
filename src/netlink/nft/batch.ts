// How are several changes applied as one, and how is a change made conditional on what was read before?

import { Errno } from '../../sys/errno.ts';
import { attrs, u32be } from '../codec/attrs.ts';
import type { Request } from '../codec/message.ts';
import { isNetlinkError } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import { batchBegin, batchEnd, NftMsg, nftLayout, nftRequest } from './message.ts';

/** Each attempt takes well below a millisecond; other software changes the rule set often, but not constantly. */
const ATTEMPTS = 100;

/** linux/netfilter/nf_tables.h, enum nft_gen_attributes */
const generationMessage = nftLayout('GEN', attrs('generation', { id: [1, u32be] }));

/**
 * Applies changes in order as one transaction: all or none. Sends nothing if there are no changes.
 * @throws NetlinkError of the first change that the kernel refused
 * Same as: `nft -f`
 */
export function commit(socket: NetlinkSocket, changes: readonly Request[]): void {
  if (changes.length) socket.transaction(batchBegin(), changes, batchEnd());
}

/**
 * Reads, decides and applies as one step. If the rule set was changed in between, everything is retried.
 * @param decide reads what it needs and returns the changes; may run several times, and may throw
 * @throws NetlinkError of the first change that the kernel refused
 */
export function commitAfterReading(socket: NetlinkSocket, decide: () => readonly Request[]): void {
  for (let attempt = 1; ; attempt++) {
    const generation = readGeneration(socket);
    const changes = decide();
    if (changes.length === 0) return;
    try {
      socket.transaction(batchBegin(generation), changes, batchEnd());
      return;
    } catch (thrown) {
      if (!isNetlinkError(thrown, Errno.ERESTART) || attempt === ATTEMPTS) throw thrown;
    }
  }
}

/**
 * Asks the kernel whether it would apply the changes, without applying them.
 * @throws NetlinkError of the first change that the kernel would refuse
 * Same as: `nft -c -f`
 */
export function tryOut(socket: NetlinkSocket, changes: readonly Request[]): void {
  // The kernel checks a batch without an end like any other, and then discards it.
  socket.transaction(batchBegin(), changes);
}

/** The rule set's generation number, which grows with every transaction of any program. */
function readGeneration(socket: NetlinkSocket): number {
  const request = nftRequest('read the rule set generation', NftMsg.GETGEN, generationMessage, 'inet', {});
  const body = socket.find({ ...request, isQuestion: true }, []);
  return body ? (generationMessage.decode(body).attrs.id ?? 0) : 0;
}
