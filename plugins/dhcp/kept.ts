// What is noted about an IPv4 lease?
import * as z from 'zod/mini';
import { Lease } from './lease.ts';
import type { KeptLease, LeaseKind } from './record.ts';

const LeaseState = z.object({
  lease: Lease,
  /** Value of option 61, in hexadecimal digits. */
  clientId: z.string(),
  /** The lease is over, and its address was taken from the interface. */
  withdrawn: z.optional(z.boolean()),
  /** The address that ADD reported, if the interface has another one since. */
  reported: z.optional(z.string()),
});
export type LeaseState = z.output<typeof LeaseState>;
export type LeaseRecord = KeptLease<LeaseState>;

/** Records of IPv4 leases. */
export const IPV4_LEASES: LeaseKind<LeaseState> = { schema: LeaseState };

/** The client identifier that a lease is for. */
export function clientIdIn({ clientId }: LeaseState): Uint8Array {
  return Uint8Array.from(Buffer.from(clientId, 'hex'));
}
