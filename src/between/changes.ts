// When may something between nodes have been changed by others?
import type { Envelope } from '../netlink/codec.ts';
import { decodeNftDeletion, NFT_GROUPS, openMonitor } from '../netlink/monitor.ts';
import { linkMessage } from '../netlink/rtnl/link.ts';
import { ndmsg } from '../netlink/rtnl/neighbour.ts';
import { rtmsg } from '../netlink/rtnl/route.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE } from '../netlink/socket.ts';
import { PROTOCOL, TUNNELS } from './names.ts';
import { SPARE_TABLE } from './spare.ts';

/** linux/rtnetlink.h: RTNLGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE */
const GROUPS = [1, 3, 5, 7, 9, 11];

/** linux/rtnetlink.h: RTM_NEW… and RTM_DEL… of devices, addresses, routes and neighbours */
const LINK = [16, 17];
const ADDRESS = [20, 21];
const ROUTE = [24, 25];
const NEIGHBOUR = [28, 29];

/** Devices whose changes matter: those that lead to other nodes, and the tunnels. */
export interface Concerned {
  readonly links: ReadonlySet<number>;
  readonly tunnels: ReadonlySet<number>;
}

/** Who is told. */
interface ChangeEvents {
  /** Something may have changed. */
  changed(): void;
  /** Notifications cannot be received at present. */
  interrupted(why: string): void;
}

const NAMES: readonly string[] = Object.values(TUNNELS);

/**
 * Listens until it is closed.
 * @param concerned asked at each notification
 * @returns a function that stops this
 * @throws SystemError if the sockets cannot be opened
 */
export function openChanges(concerned: () => Concerned, events: ChangeEvents): () => void {
  const tell = (isIt: (message: Envelope) => boolean) => ({
    changed(messages: readonly Envelope[]) {
      let matters = true;
      try {
        matters = messages.some(isIt);
      } catch {
        // One that cannot be read may say anything.
      }
      if (matters) events.changed();
    },
    lost: () => events.changed(),
    interrupted: events.interrupted,
  });
  const routes = openMonitor(
    NETLINK_ROUTE,
    GROUPS,
    tell(message => matters(message, concerned())),
  );
  const rules = openMonitor(
    NETLINK_NETFILTER,
    NFT_GROUPS,
    tell(message => decodeNftDeletion(message, table => table === SPARE_TABLE.name) !== undefined),
  );
  return () => {
    routes.close();
    rules.close();
  };
}

/** Whether a notification is about what we made, or about what a plan is made from. */
export function matters({ type, body }: Envelope, { links, tunnels }: Concerned): boolean {
  if (ROUTE.includes(type)) return rtmsg.decode(body).protocol === PROTOCOL;
  if (NEIGHBOUR.includes(type)) return tunnels.has(ndmsg.decode(body).index);
  // Pods come and go with addresses on devices of theirs, which is as cheap to look at as to tell apart.
  if (ADDRESS.includes(type)) return true;
  if (!LINK.includes(type)) return false;
  const { header, attrs } = linkMessage.decode(body);
  return links.has(header.index) || tunnels.has(header.index) || NAMES.includes(attrs.ifname ?? '');
}
