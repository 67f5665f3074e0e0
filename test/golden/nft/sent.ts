// How does a test see the message that an nf_tables change becomes?
import { encodeMessages, NLM_F_ACK, NLM_F_REQUEST, type Request } from '../../../src/netlink/codec.ts';

/** The whole message of a change, with sequence number and port zero. */
export function sent(...changes: readonly Request[]): Uint8Array {
  const [change, ...more] = changes;
  if (change === undefined || more.length) throw new Error('Cannot show message: expected one change');
  const { type, flags = 0, body } = change;
  return encodeMessages([{ type, flags: flags | NLM_F_REQUEST | NLM_F_ACK, seq: 0, body }]).slice();
}
