// How does the pair of interfaces between bridge and container come to be, and how is it found again?
import { type Attachment, findOwner, renderOwner } from '../../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import {
  createLink,
  findLink,
  getLink,
  type Link,
  listLinks,
  setBridgePort,
  setLink,
} from '../../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import type { Netns } from '../../../src/sys/netns.ts';

/** linux/if.h: IFALIASZ, less the zero at the end and a byte that the kernel does not use either. */
const ALIAS_MAX_BYTES = 254;
const NAME_ATTEMPTS = 10;

/** Both ends of a veth pair. */
export interface Pair {
  readonly host: Link;
  readonly container: Link;
}

/** What a new pair is to be. */
export interface PairPlan {
  readonly owner: Attachment;
  readonly bridge: Link;
  /** Bytes; 0 for the kernel's default. */
  readonly mtu: number;
  readonly mac: string | undefined;
  readonly hairpin: boolean;
  readonly isolated: boolean;
}

/**
 * Creates the pair in one request: the host end as port of the bridge, the other end in the container under its final
 * name. The host end is named at random and carries the attachment as its alias.
 * @throws CniError when the container has an interface of that name
 */
export function createPair(
  host: NetlinkSocket,
  container: NetlinkSocket,
  netns: Netns,
  plan: PairPlan,
): Pair {
  const { owner, bridge, hairpin, isolated } = plan;
  const name = createNamedPair(host, container, netns, plan);
  const link = getLink(host, name);
  const alias = renderOwner(owner);
  setLink(host, link.index, { up: true, ...(alias.length <= ALIAS_MAX_BYTES ? { alias } : {}) });
  if (hairpin || isolated) setBridgePort(host, link.index, { hairpin, isolated });
  return { host: { ...link, master: bridge.index }, container: getLink(container, owner.ifname) };
}

/** Host ends of pairs that belong to a network, with their attachments. */
export function listPairs(host: NetlinkSocket, network: string): { link: Link; owner: Attachment }[] {
  return listLinks(host).flatMap(link => {
    const owner = link.kind === 'veth' ? findOwner(link.attrs.alias) : undefined;
    return owner?.network === network ? { link, owner } : [];
  });
}

function createNamedPair(
  host: NetlinkSocket,
  container: NetlinkSocket,
  netns: Netns,
  plan: PairPlan,
): string {
  const { owner, bridge, mac } = plan;
  const mtu = plan.mtu || undefined;
  for (let attempt = 1; ; attempt++) {
    const name = `veth${Buffer.from(crypto.getRandomValues(new Uint8Array(4))).toString('hex')}`;
    try {
      const peer = { name: owner.ifname, netnsFd: netns.fd, mac, mtu };
      createLink(host, { name, kind: 'veth', master: bridge.index, mtu, peer });
      return name;
    } catch (thrown) {
      if (!isNetlinkError(thrown, Errno.EEXIST) || attempt === NAME_ATTEMPTS) throw thrown;
      // Either name may be taken; only the host's is ours to change.
      if (findLink(container, owner.ifname)) throw interfaceExists(owner.ifname, netns, thrown);
    }
  }
}

function interfaceExists(ifname: string, netns: Netns, cause: unknown): CniError {
  return new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot create interface "${ifname}" in "${netns.path}": an interface of that name exists; run DEL first`,
    { details: `CNI_IFNAME=${ifname}`, cause },
  );
}
