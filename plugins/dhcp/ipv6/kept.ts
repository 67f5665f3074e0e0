// What is noted about an IPv6 lease?
import * as z from 'zod/mini';
import type { Identity } from '../identity.ts';
import { IPV6_PART, type KeptLease, type LeaseKind } from '../record.ts';
import { Lease } from './lease.ts';

const LeaseState = z.object({
  lease: Lease,
  /** Who the client is: DUID and IAID, in hexadecimal digits. */
  duid: z.string(),
  iaid: z.string(),
  /** Prefix length of the address on the interface. */
  prefix: z.number(),
  /** The interface has not been seen with the address yet: ADD, or the plugin that called it, may still be at work. */
  unseen: z.optional(z.boolean()),
  /** The lease is over, and its address was taken from the interface. */
  withdrawn: z.optional(z.boolean()),
  /** The address that ADD reported, if the interface has another one since. */
  reported: z.optional(z.string()),
});
export type LeaseState = z.output<typeof LeaseState>;
export type LeaseRecord = KeptLease<LeaseState>;

/** Records of IPv6 leases. */
export const IPV6_LEASES: LeaseKind<LeaseState> = { part: IPV6_PART, schema: LeaseState };

/** The client that a lease is for. */
export function identityIn({ duid, iaid }: LeaseState): Identity {
  return { duid: Uint8Array.from(Buffer.from(duid, 'hex')), iaid: Uint8Array.from(Buffer.from(iaid, 'hex')) };
}
