// When can a container use addresses that are subject to duplicate address detection?
import { renderCidr } from '../net/cidr.ts';
import { IFA_F_DADFAILED, IFA_F_TENTATIVE, listAddresses } from '../netlink/rtnl/addr.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';

/** The kernel sends one probe and waits a second, after a delay of up to one second (RFC 4862). */
const DETECTION_DEADLINE_MS = 5_000;
const POLL_MS = 25;

/**
 * Waits until the kernel has finished duplicate address detection for the interface's IPv6 addresses.
 * @throws Error naming an address that another host uses, or that stays undecided
 */
export async function awaitDuplicateDetection(socket: NetlinkSocket, link: Link): Promise<void> {
  const giveUpAt = performance.now() + DETECTION_DEADLINE_MS;
  for (;;) {
    const addresses = listAddresses(socket, link.index);
    const duplicate = addresses.find(({ flags }) => flags & IFA_F_DADFAILED);
    if (duplicate) {
      throw new Error(
        `Cannot use ${renderCidr(duplicate.cidr)} on "${link.name}": another host on the network has that address`,
      );
    }
    const tentative = addresses.filter(({ flags }) => flags & IFA_F_TENTATIVE);
    if (tentative.length === 0) return;
    if (performance.now() > giveUpAt) {
      const names = tentative.map(({ cidr }) => renderCidr(cidr)).join(', ');
      throw new Error(
        `Cannot use ${names} on "${link.name}": duplicate address detection has not finished after ${DETECTION_DEADLINE_MS / 1000} s`,
      );
    }
    await Bun.sleep(POLL_MS);
  }
}
