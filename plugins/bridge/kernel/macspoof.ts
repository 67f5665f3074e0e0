// How is a container prevented from sending frames from a hardware address other than its own?
import { type Attachment, findOwner, renderOwner } from '../../../src/cni/attachment.ts';
import { commitAfterReading, tryOut } from '../../../src/netlink/nft/batch.ts';
import { addChain, type BaseChain } from '../../../src/netlink/nft/chain.ts';
import { NF_DROP } from '../../../src/netlink/nft/data.ts';
import { addElements, deleteElements, findElement, listElements } from '../../../src/netlink/nft/element.ts';
import { decide } from '../../../src/netlink/nft/expr/immediate.ts';
import { isInSet, isNotInSet } from '../../../src/netlink/nft/expr/lookup.ts';
import { loadMeta } from '../../../src/netlink/nft/expr/meta.ts';
import { loadLinkHeader } from '../../../src/netlink/nft/expr/payload.ts';
import type { Table } from '../../../src/netlink/nft/message.ts';
import { addRule, countRules, flushChain } from '../../../src/netlink/nft/rule.ts';
import { addSet, type NftSet } from '../../../src/netlink/nft/set.ts';
import { REG } from '../../../src/netlink/nft/statements.ts';
import { addTable } from '../../../src/netlink/nft/table.ts';
import { COMMENT_MAX_LENGTH } from '../../../src/netlink/nft/userdata.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { confirm } from '../../../src/plugin/confirm.ts';
import type { KeptAttachments } from '../../../src/plugin/kept.ts';

/** The table of our own that holds everything below. */
const TABLE: Table = { family: 'bridge', name: 'catena_macspoof' };
/** Ports whose source addresses are checked. */
const PORTS: NftSet = { table: TABLE, name: 'ports', key: ['ifname'] };
/** Allowed pairs of port and hardware address. */
const ALLOWED: NftSet = { table: TABLE, name: 'allowed', key: ['ifname', 'ether_addr'] };

const CHAIN = 'prerouting';
/** linux/netfilter_bridge.h, NF_BR_PRI_NAT_DST_BRIDGED: before addresses are learned or translated. */
const HOOKED: BaseChain = { type: 'filter', hook: 'prerouting', priority: -300 };

/** linux/if_ether.h: struct ethhdr { unsigned char h_dest[6], h_source[6]; __be16 h_proto; } */
const ETHER_SOURCE = { offset: 6, length: 6 };

/** Same as: `iifname @ports iifname . ether saddr != @allowed drop` */
const RULE = [
  loadMeta(REG.first, 'iifname'),
  isInSet(PORTS, REG.first),
  loadMeta(REG.first, 'iifname'),
  loadLinkHeader(REG.quarter(4), ETHER_SOURCE.offset, ETHER_SOURCE.length),
  isNotInSet(ALLOWED, REG.first),
  decide({ code: NF_DROP }),
];

/**
 * Drops frames that arrive through the port from any other hardware address, in one transaction. Also removes elements that a
 * dead attachment left under the name of the port.
 */
export function ensureMacspoof(socket: NetlinkSocket, owner: Attachment, port: string, mac: string): void {
  const comment = noteOf(owner);
  commitAfterReading(socket, () => {
    const rival = findElement(socket, PORTS, [port])?.comment;
    return [
      ...skeletonChanges(socket),
      ...(rival === undefined ? [] : removals(socket, note => note === rival)),
      ...addElements(PORTS, [{ key: [port], comment }]),
      ...addElements(ALLOWED, [{ key: [port, mac], comment }]),
    ];
  });
}

/** Lifts the restriction of an attachment. Its elements carry its name, so no other information is needed. */
export function removeMacspoof(socket: NetlinkSocket, owner: Attachment): void {
  const own = noteOf(owner);
  commitAfterReading(socket, () => removals(socket, note => note === own));
}

/** Lifts the restrictions of a network's attachments that are no longer valid. */
export function removeStaleMacspoof(socket: NetlinkSocket, network: string, kept: KeptAttachments): void {
  commitAfterReading(socket, () =>
    removals(socket, note => {
      const owner = findOwner(note);
      return owner?.network === network && !kept.has(owner);
    }),
  );
}

/** The ports and hardware addresses allowed for an attachment; empty if it is not restricted. */
export function listAllowed(socket: NetlinkSocket, owner: Attachment): { port: string; mac: string }[] {
  const own = noteOf(owner);
  return listElements(socket, ALLOWED).flatMap(({ comment, key: [port, mac] }) =>
    comment === own ? [{ port: String(port), mac: String(mac) }] : [],
  );
}

/** @throws Error naming what is missing of the attachment's restriction, or of the rule behind it */
export function checkMacspoof(socket: NetlinkSocket, owner: Attachment, port: string, mac: string): void {
  const comment = noteOf(owner);
  const noteUnder = (set: NftSet, key: readonly string[]) => findElement(socket, set, key)?.comment;
  confirm(`anti-spoofing of "${port}": owner of the port`, comment, noteUnder(PORTS, [port]));
  confirm(`anti-spoofing of "${port}": owner of ${mac}`, comment, noteUnder(ALLOWED, [port, mac]));
  const missing = skeletonChanges(socket).map(({ op }) => op);
  confirm('anti-spoofing: changes that its rule needs', [], missing);
}

/**
 * Checks that the packet filter supports bridges and that we may change it.
 * @throws NetlinkError
 */
export function probeMacspoof(socket: NetlinkSocket): void {
  tryOut(socket, skeleton());
}

/** The changes that complete the skeleton: none except on the first attachment. */
function skeletonChanges(socket: NetlinkSocket): Request[] {
  const count = countRules(socket, TABLE).get(CHAIN) ?? 0;
  if (count === 1) return [];
  return [...skeleton(), ...(count ? [flushChain(TABLE, CHAIN)] : []), addRule(TABLE, CHAIN, RULE)];
}

function skeleton(): Request[] {
  return [
    addTable(TABLE, 'catena: hardware addresses that containers may send from'),
    addSet(PORTS),
    addSet(ALLOWED),
    addChain(TABLE, CHAIN, HOOKED),
  ];
}

function removals(socket: NetlinkSocket, isGone: (note: string | undefined) => boolean): Request[] {
  return [PORTS, ALLOWED].flatMap(set => {
    const keys = listElements(socket, set).flatMap(({ comment, key }) => (isGone(comment) ? [key] : []));
    return deleteElements(set, keys);
  });
}

function noteOf(owner: Attachment): string {
  return renderOwner(owner, COMMENT_MAX_LENGTH);
}
