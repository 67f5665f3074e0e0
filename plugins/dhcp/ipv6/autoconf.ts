// Which addresses does the kernel form from router advertisements (SLAAC), and when can they be used?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { type Cidr, renderCidr } from '../../../src/net/cidr.ts';
import {
  type Address,
  IFA_F_DADFAILED,
  IFA_F_DEPRECATED,
  IFA_F_TEMPORARY,
  IFA_F_TENTATIVE,
  listAddresses,
} from '../../../src/netlink/rtnl/addr.ts';
import type { OpenPlace } from '../give-back.ts';
import type { Advertisement } from './codec/advertisement.ts';
import { isGlobal } from './codec/options.ts';
import type { RouterWatch } from './routers.ts';

const POLL_MS = 50;
/** A packet may be lost, and a router may wait half a second; the kernel itself asks again after four. */
const SOLICIT_EVERY_MS = 2_000;

/** The global addresses that the interface itself uses: those of privacy extensions come and go. */
export function formedAddresses({ socket, link }: Pick<OpenPlace, 'socket' | 'link'>): Address[] {
  return listAddresses(socket, link.index).filter(
    ({ cidr, flags }) => isGlobal(cidr.ip) && !(flags & (IFA_F_TEMPORARY | IFA_F_DEPRECATED)),
  );
}

/**
 * Waits until the kernel has formed an address, and has probed for it.
 * @param until the end of waiting in milliseconds of `performance.now()`, and the seconds that it was set to
 * @throws CniError 11 when there is none by then, which says what was heard
 */
export async function awaitFormed(
  place: OpenPlace,
  routers: RouterWatch,
  { giveUpAt, timeoutS }: { readonly giveUpAt: number; readonly timeoutS: number },
): Promise<Cidr[]> {
  for (let solicitAt = performance.now(); ; ) {
    if (performance.now() >= solicitAt) {
      routers.solicit();
      solicitAt += SOLICIT_EVERY_MS;
    }
    const formed = formedAddresses(place);
    const usable = formed.filter(({ flags }) => !(flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)));
    const isDecided = formed.every(({ flags }) => flags & IFA_F_DADFAILED || !(flags & IFA_F_TENTATIVE));
    if (isDecided && usable.length > 0) return usable.map(({ cidr }) => cidr);
    if (performance.now() >= giveUpAt) throw noAddress(place, timeoutS, formed, routers.heard());
    await Bun.sleep(POLL_MS);
  }
}

function noAddress(
  { link }: OpenPlace,
  timeoutS: number,
  formed: readonly Address[],
  heard: readonly Advertisement[],
): CniError {
  const taken = formed.find(({ flags }) => flags & IFA_F_DADFAILED);
  const autonomous = heard.some(({ prefixes }) => prefixes.some(one => one.autonomous));
  const what = taken
    ? `another host on the network has ${renderCidr(taken.cidr)}`
    : heard.length === 0
      ? 'no router advertised itself'
      : autonomous
        ? 'the kernel formed none of the prefix that a router advertised'
        : `routers advertise no prefix to form addresses in${heard.some(({ managed }) => managed) ? '; they refer to DHCPv6: use "ipv6": "dhcp"' : ''}`;
  return new CniError(
    ErrorCode.tryAgainLater,
    `Cannot obtain an IPv6 address for "${link.name}" within ${timeoutS} s: ${what}`,
    { details: 'the router must be on the network of the interface, and be let through by packet filters' },
  );
}
