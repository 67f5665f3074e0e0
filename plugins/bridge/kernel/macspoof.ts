// How is a container prevented from sending frames from a hardware address other than its own?
import { noteOf } from '../../../src/attach/owner.ts';
import type { AttachmentId } from '../../../src/cni/attachment.ts';
import { addEntries, deletePlaces, type Entry, findElement } from '../../../src/netlink/nft/element.ts';
import { type Table, tryOut } from '../../../src/netlink/nft/message.ts';
import {
  changeOwned,
  findOwnedProblems,
  listOwned,
  placeOf,
  type Skeleton,
  skeletonChanges,
  sweepOwned,
} from '../../../src/netlink/nft/skeleton.ts';
import type { NftSet } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { isStaleNote, type KeptAttachments } from '../../../src/plugin/define.ts';
import { confirmAll } from '../../../src/plugin/steps.ts';

/** The table of our own that holds everything below. */
const TABLE: Table = { family: 'bridge', name: 'catena_macspoof' };
/** Ports whose source addresses are checked. */
const PORTS: NftSet = { table: TABLE, name: 'ports', key: ['ifname'] };
/** Allowed pairs of port and hardware address. */
const ALLOWED: NftSet = { table: TABLE, name: 'allowed', key: ['ifname', 'ether_addr'] };

const SETS = [PORTS, ALLOWED];

/** linux/netfilter_bridge.h */
const NF_BR_PRI_NAT_DST_BRIDGED = -300;

const SKELETON: Skeleton = {
  table: TABLE,
  comment: 'catena: hardware addresses that containers may send from',
  sets: SETS,
  chains: [
    {
      name: 'prerouting',
      // Before addresses are learned or translated.
      base: { type: 'filter', hook: 'prerouting', priority: NF_BR_PRI_NAT_DST_BRIDGED },
      rules: ['iifname @ports iifname . ether saddr != @allowed drop'],
    },
  ],
};

/**
 * Drops frames that arrive through the port from any other hardware address, in one transaction. Also removes elements that a
 * dead attachment left under the name of the port.
 */
export function ensureMacspoof(socket: NetlinkSocket, owner: AttachmentId, port: string, mac: string): void {
  changeOwned(socket, [SKELETON], () => {
    const rival = findElement(socket, PORTS, [port])?.comment;
    const stale = rival === undefined ? [] : listOwned(socket, SETS, note => note === rival);
    return [...deletePlaces(stale.map(placeOf)), ...addEntries(entriesFor(owner, port, mac))];
  });
}

/** Lifts the restriction of an attachment. Its elements carry its name, so no other information is needed. */
export function removeMacspoof(socket: NetlinkSocket, owner: AttachmentId): void {
  const own = noteOf(owner);
  sweepOwned(socket, SETS, note => note === own);
}

/** Lifts the restrictions of a network's attachments that are no longer valid. */
export function removeStaleMacspoof(socket: NetlinkSocket, network: string, kept: KeptAttachments): void {
  sweepOwned(socket, SETS, note => isStaleNote(note, network, kept));
}

/** The ports and hardware addresses allowed for an attachment; empty if it is not restricted. */
export function listAllowed(socket: NetlinkSocket, owner: AttachmentId): { port: string; mac: string }[] {
  const own = noteOf(owner);
  return listOwned(socket, [ALLOWED], note => note === own).map(
    ({
      element: {
        key: [port, mac],
      },
    }) => ({
      port: String(port),
      mac: String(mac),
    }),
  );
}

/** @throws Error naming what is missing of the attachment's restriction, or of the rule behind it */
export function checkMacspoof(socket: NetlinkSocket, owner: AttachmentId, port: string, mac: string): void {
  const problems = findOwnedProblems(socket, [SKELETON], entriesFor(owner, port, mac));
  confirmAll(`anti-spoofing of "${port}"`, problems);
}

/**
 * Checks that the packet filter supports bridges and that we may change it.
 * @throws NetlinkError
 */
export function probeMacspoof(socket: NetlinkSocket): void {
  tryOut(socket, skeletonChanges(SKELETON));
}

function entriesFor(owner: AttachmentId, port: string, mac: string): Entry[] {
  const comment = noteOf(owner);
  return [
    { set: PORTS, element: { key: [port], comment } },
    { set: ALLOWED, element: { key: [port, mac], comment } },
  ];
}
