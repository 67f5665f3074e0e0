// How is a container prevented from sending frames from a hardware address other than its own?

import { attachmentOf, noteOf } from '../../../src/attach/owner.ts';
import { parseMac } from '../../../src/net/interface.ts';
import { addEntries, deletePlaces, type Entry, findElement } from '../../../src/netlink/nft/element.ts';
import {
  decide,
  isEqual,
  jump,
  loadHeader,
  loadMeta,
  NF_DROP,
  NFT_RETURN,
  REG,
} from '../../../src/netlink/nft/expr.ts';
import { commitAfterReading, type Table, tryOut } from '../../../src/netlink/nft/message.ts';
import {
  changeOwned,
  findOwnedProblems,
  listOwned,
  placeOf,
  restoreSkeleton,
  type Skeleton,
  skeletonChanges,
  sweepOwned,
} from '../../../src/netlink/nft/skeleton.ts';
import {
  addChain,
  addRule,
  addTable,
  type BaseChain,
  deleteChain,
  deleteRule,
  encodeFields,
  flushChain,
  hasTable,
  listChains,
  listRules,
  type NftSet,
  type Rule,
} from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { type Call, isStaleNote, type KeptAttachments } from '../../../src/plugin/define.ts';
import { confirmAll } from '../../../src/plugin/steps.ts';

/** The table of our own that holds everything below. */
const TABLE: Table = { family: 'bridge', name: 'catena_macspoof' };
/** Ports whose source addresses are checked. */
const PORTS: NftSet = { table: TABLE, name: 'ports', key: ['ifname'] };
const ALLOWED: NftSet = { table: TABLE, name: 'allowed', key: ['ifname', 'ether_addr'] };

const SETS = [PORTS, ALLOWED];

/** linux/netfilter_bridge.h, NF_BR_PRI_NAT_DST_BRIDGED: before addresses are learned or translated. */
const HOOKED: BaseChain = { type: 'filter', hook: 'prerouting', priority: -300 };

const SKELETON: Skeleton = {
  table: TABLE,
  comment: 'catena: hardware addresses that containers may send from',
  sets: SETS,
  chains: [
    {
      name: 'prerouting',
      base: HOOKED,
      rules: ['iifname @ports iifname . ether saddr != @allowed drop'],
    },
  ],
};

/**
 * Drops frames that arrive through the port from any other hardware address, in one transaction. Also removes elements that a
 * dead attachment left under the name of the port.
 */
export function ensureMacspoof(call: Call, port: string, mac: string): void {
  const { hostNft: socket } = call;
  changeOwned(socket, [SKELETON], () => {
    const rival = findElement(socket, PORTS, [port])?.comment;
    const stale = rival === undefined ? [] : listOwned(socket, SETS, note => note === rival);
    return [...deletePlaces(stale.map(placeOf)), ...addEntries(entriesFor(call, port, mac))];
  });
}

/** The same, and writes the rules again if others have changed them. */
export function restoreMacspoof(call: Call, port: string, mac: string): void {
  restoreSkeleton(call.hostNft, SKELETON);
  ensureMacspoof(call, port, mac);
}

/** Lifts the restriction of an attachment. Its elements carry its name, so no other information is needed. */
export function removeMacspoof(call: Call): void {
  const own = noteOf(attachmentOf(call));
  sweepOwned(call.hostNft, SETS, note => note === own);
}

/** Lifts the restrictions of a network's attachments that are no longer valid. */
export function removeStaleMacspoof({ hostNft, network }: Call, kept: KeptAttachments): void {
  sweepOwned(hostNft, SETS, note => isStaleNote(note, network, kept));
}

/** The ports and hardware addresses allowed for an attachment; empty if it is not restricted. */
export function listAllowed(call: Call): { port: string; mac: string }[] {
  const own = noteOf(attachmentOf(call));
  return listOwned(call.hostNft, [ALLOWED], note => note === own).map(({ element }) => {
    const [port, mac] = element.key.map(String) as [string, string];
    return { port, mac };
  });
}

/** @throws Error naming what is missing of the attachment's restriction, or of the rule behind it */
export function checkMacspoof(call: Call, port: string, mac: string): void {
  const problems = findOwnedProblems(call.hostNft, [SKELETON], entriesFor(call, port, mac));
  confirmAll(`anti-spoofing of "${port}"`, problems);
}

/**
 * Checks that the packet filter supports bridges and that we may change it.
 * @throws NetlinkError
 */
export function probeMacspoof(socket: NetlinkSocket): void {
  tryOut(socket, skeletonChanges(SKELETON));
}

function entriesFor(call: Call, port: string, mac: string): Entry[] {
  const comment = noteOf(attachmentOf(call));
  return [
    { set: PORTS, element: { key: [port], comment } },
    { set: ALLOWED, element: { key: [port, mac], comment } },
  ];
}

/** Others may use this table as well. */
const NAT_TABLE: Table = { family: 'bridge', name: 'nat' };
const PREROUTING = 'PREROUTING';

/** linux/if_ether.h: struct ethhdr { unsigned char h_dest[6], h_source[6]; __be16 h_proto; } */
const SOURCE_OFFSET = 6;
const MAC_BYTES = 6;

/** True when the reference plugin restricts the attachment to its hardware address. */
export function hasReferenceMacspoof(call: Call): boolean {
  const { hostNft: socket } = call;
  if (!hasTable(socket, NAT_TABLE)) return false;
  const { comment, chains } = namesOf(call);
  const found = listRules(socket, NAT_TABLE).filter(rule => rule.comment === comment);
  return [PREROUTING, ...chains].every(chain => found.some(rule => rule.chain === chain));
}

/**
 * Restricts the attachment as the reference plugin does, in one transaction.
 * Same as: `iifname <port> jump …`, `jump …-mac`, `ether saddr <mac> return`, `drop`, each with the comment
 */
export function ensureReferenceMacspoof(call: Call, port: string, mac: string): void {
  const { comment, chains } = namesOf(call);
  const [own = '', ofMac = ''] = chains;
  commitAfterReading(call.hostNft, () =>
    hasReferenceMacspoof(call)
      ? []
      : [
          addTable(NAT_TABLE),
          addChain(NAT_TABLE, PREROUTING, HOOKED),
          ...[own, ofMac].flatMap(name => [addChain(NAT_TABLE, name), flushChain(NAT_TABLE, name)]),
          addRule(
            NAT_TABLE,
            ofMac,
            [
              loadHeader('ll', REG.first, SOURCE_OFFSET, MAC_BYTES),
              isEqual(REG.first, parseMac(mac)),
              decide({ code: NFT_RETURN }),
            ],
            comment,
          ),
          addRule(NAT_TABLE, ofMac, [decide({ code: NF_DROP })], comment),
          addRule(NAT_TABLE, own, [decide(jump(ofMac))], comment),
          addRule(
            NAT_TABLE,
            PREROUTING,
            [
              loadMeta(REG.first, 'iifname'),
              isEqual(REG.first, encodeFields(['ifname'], [port])),
              decide(jump(own)),
            ],
            comment,
          ),
        ],
  );
}

/** Removes the chains that the reference plugin made for the attachment, and the rule that jumps to them. */
export function removeReferenceMacspoof(call: Call): void {
  const { comment, chains } = namesOf(call);
  removeChains(call.hostNft, rule => rule.comment === comment, chains);
}

/**
 * Removes the chains of attachments whose port no longer exists. The chains do not name their network, but nothing can arrive
 * through a missing port.
 * @param exists tells whether the host has a device of that name
 */
export function removeUnusedReferenceMacspoof(
  socket: NetlinkSocket,
  exists: (port: string) => boolean,
): void {
  removeChains(socket, rule => isJump(rule) && !exists(portOf(rule)));
}

/**
 * Removes rules, and the chains that they jump to, in one transaction. Table and base chain remain, as after the reference's own DEL.
 * @param isGone judges rules of the base chain
 * @param more chains, whether a rule leads there or not
 */
function removeChains(
  socket: NetlinkSocket,
  isGone: (rule: Rule) => boolean,
  more: readonly string[] = [],
): void {
  if (!hasTable(socket, NAT_TABLE)) return;
  commitAfterReading(socket, () => {
    const jumps = listRules(socket, NAT_TABLE).filter(rule => rule.chain === PREROUTING && isGone(rule));
    const names = new Set([...more, ...jumps.map(targetOf).flatMap(name => [name, `${name}-mac`])]);
    const chains = listChains(socket, NAT_TABLE).flatMap(({ name }) => (names.has(name) ? [name] : []));
    // The first chain jumps to the second. Rules are deleted before chains, otherwise the kernel reports the chains as in use.
    return [
      ...jumps.map(({ handle }) => deleteRule(NAT_TABLE, PREROUTING, handle)),
      ...chains.map(name => flushChain(NAT_TABLE, name)),
      ...chains.map(name => deleteChain(NAT_TABLE, name)),
    ];
  });
}

/** `iifname "<port>" jump cni-br-iface-…`, with a comment written by the reference. */
function isJump(rule: Rule): boolean {
  return /^macspoofchk-./.test(rule.comment ?? '') && portOf(rule) !== '';
}

function portOf({ expressions }: Rule): string {
  const compared = expressions.find(({ name }) => name === 'cmp')?.data as { data?: { value?: Uint8Array } };
  return new TextDecoder().decode(compared?.data?.value).replace(/\0.*$/s, '');
}

function targetOf({ expressions }: Rule): string {
  const decided = expressions.find(({ name }) => name === 'immediate')?.data as {
    data?: { verdict?: { chain?: string } };
  };
  return decided?.data?.verdict?.chain ?? '';
}

/** Chains and comments do not name the network. */
function namesOf({ env: { containerId, ifname } }: Call): { comment: string; chains: string[] } {
  const own = `cni-br-iface-${containerId}-${ifname}`;
  return { comment: `macspoofchk-${containerId}-${ifname}`, chains: [own, `${own}-mac`] };
}
