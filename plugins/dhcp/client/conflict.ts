// Does another host of the link have the address that a server has just granted?
import { refuseTakenAddresses } from '../../../src/attach/conflict.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { parseCidr } from '../../../src/net/cidr.ts';
import { parseIp } from '../../../src/net/ip.ts';
import type { Lease } from '../lease.ts';
import type { Place } from './session.ts';

/**
 * Probes for the address of a lease on an interface that does not have it (RFC 2131, 4.4.1), for up to 200 ms.
 * @returns who has it, in text; undefined if no host answers
 */
export async function findHolder({ netns, link }: Place, lease: Lease): Promise<string | undefined> {
  const { address, gateway, server } = lease;
  // The server is often a neighbour as well.
  const neighbours = [gateway, server].flatMap(one => (one ? parseIp(one) : []));
  try {
    await refuseTakenAddresses({ containerNetns: netns }, link, [parseCidr(address).ip], neighbours);
    return undefined;
  } catch (thrown) {
    if (thrown instanceof CniError) return thrown.message;
    throw thrown;
  }
}
