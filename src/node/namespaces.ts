// Which interfaces of this machine, in any namespace, have an address, a hardware address or a name?

import { visitNamespaces } from '../ipam/holders.ts';
import { findNetnsIdentity } from '../journal/netns-identity.ts';
import { renderIp } from '../net/ip.ts';
import { Tables } from '../netlink/tables.ts';

/** What an interface is searched by. */
export interface InterfaceQuery {
  /** Canonical text. */
  readonly ip?: string | undefined;
  /** Lower case, with colons. */
  readonly mac?: string | undefined;
  readonly name?: string | undefined;
}

/** An interface that matches. */
export interface FoundInterface {
  readonly ifname: string;
  /** A path to its namespace, and what identifies it. */
  readonly netns: string;
  readonly identity: string | undefined;
  /** Process ids in it, ascending. */
  readonly pids: readonly number[];
  /** In the namespace of this process. */
  readonly isHost: boolean;
  readonly alias: string | undefined;
}

/** Looks into every namespace that a process is in or a name refers to, and that this process may enter. */
export function findInterfaces({ ip, mac, name }: InterfaceQuery): FoundInterface[] {
  const found: FoundInterface[] = [];
  visitNamespaces(({ path, pids, socket, hostId }) => {
    const tables = new Tables((_, talk) => talk(socket));
    const addresses = ip === undefined ? [] : tables.addresses;
    const withIp = new Set(
      addresses.filter(({ cidr }) => renderIp(cidr.ip) === ip).map(({ index }) => index),
    );
    for (const link of tables.links) {
      if (!withIp.has(link.index) && (mac === undefined || link.mac !== mac) && link.name !== name) continue;
      const isHost = hostId === undefined;
      const identity = findNetnsIdentity(path);
      found.push({ ifname: link.name, netns: path, identity, pids, isHost, alias: link.attrs.alias });
    }
  });
  return found;
}
