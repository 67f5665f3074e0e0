// How is a container kept from sending frames under another hardware address than its own?
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

/** Everything below lives in one table of our own. */
const TABLE: Table = { family: 'bridge', name: 'catena_macspoof' };
/** Ports whose senders are looked at. */
const PORTS: NftSet = { table: TABLE, name: 'ports', key: ['ifname'] };
/** What may come in there: port and hardware address. */
const ALLOWED: NftSet = { table: TABLE, name: 'allowed', key: ['ifname', 'ether_addr'] };

const CHAIN = 'prerouting';
/** linux/netfilter_bridge.h, NF_BR_PRI_NAT_DST_BRIDGED: before anything is learned or translated. */
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
 * Drops frames that come in through the port from any other hardware address, in one transaction. What a dead
 * attachment left under the name of the port goes.
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

/** Lifts the restriction of an attachment. Its elements carry its name, so nothing else needs to be known. */
export function removeMacspoof(socket: NetlinkSocket, owner: Attachment): void {
  const own = noteOf(owner);
  commitAfterReading(socket, () => removals(socket, note => note === own));
}

/** Lifts the restrictions of a network's attachments that are not valid any more. */
export function removeStaleMacspoof(
  socket: NetlinkSocket,
  network: string,
  valid: readonly Attachment[],
): void {
  const keep = new Set(valid.map(noteOf));
  commitAfterReading(socket, () =>
    removals(socket, note => findOwner(note)?.network === network && !keep.has(note ?? '')),
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
 * Makes sure that the packet filter is there for bridges, and lets us change it.
 * @throws NetlinkError
 */
export function probeMacspoof(socket: NetlinkSocket): void {
  tryOut(socket, skeleton());
}

/** What is missing of the skeleton: nothing on all but the first attachment. */
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
