// Does another host of the link have the address that a server has just granted?
import { parseCidr } from '../../../src/net/cidr.ts';
import { sameIp } from '../../../src/net/ip.ts';
import {
  addAddress,
  IFA_F_DADFAILED,
  IFA_F_TENTATIVE,
  listAddresses,
  removeAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import type { OpenPlace } from '../give-back.ts';
import type { Lease } from './lease.ts';

/** The kernel probes once, and waits a second, after a delay of up to one second (RFC 4862). */
const DEADLINE_MS = 4_000;
const POLL_MS = 25;

/**
 * Has the kernel probe for the address of a lease on an interface that does not have it (RFC 9915, section 18.2.10.1). The interface
 * has the address for that long only: the plugin that called will add it.
 * @returns what stands against the address, in text; undefined if no host answers
 */
export async function findHolder(
  { socket, link }: OpenPlace,
  { address }: Lease,
): Promise<string | undefined> {
  const cidr = parseCidr(`${address}/128`);
  const find = () => listAddresses(socket, link.index).find(one => sameIp(one.cidr.ip, cidr.ip));
  // An attachment that is added again may have it still.
  if (find()) return undefined;
  addAddress(socket, link.index, cidr);
  try {
    for (const giveUpAt = performance.now() + DEADLINE_MS; performance.now() < giveUpAt; ) {
      const { flags = 0 } = find() ?? {};
      if (flags & IFA_F_DADFAILED) return `another host on the network has ${address}`;
      if (!(flags & IFA_F_TENTATIVE)) return undefined;
      await Bun.sleep(POLL_MS);
    }
    return undefined;
  } finally {
    removeAddress(socket, link.index, cidr);
  }
}
