// What does the reference plugin leave of its anti-spoofing, and how is it removed?
import type { AttachmentId } from '../../../src/cni/attachment.ts';
import { parseMac } from '../../../src/net/interface.ts';
import {
  decide,
  isEqual,
  jump,
  loadLinkHeader,
  loadMeta,
  NF_DROP,
  NFT_RETURN,
  REG,
} from '../../../src/netlink/nft/expr.ts';
import { commitAfterReading, type Table } from '../../../src/netlink/nft/message.ts';
import {
  addChain,
  addRule,
  addTable,
  type BaseChain,
  deleteChain,
  deleteRule,
  flushChain,
  hasTable,
  listChains,
  listRules,
  type Rule,
} from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';

/** Others may use this table as well. */
const TABLE: Table = { family: 'bridge', name: 'nat' };
const PREROUTING = 'PREROUTING';
/** linux/netfilter_bridge.h, NF_BR_PRI_NAT_DST_BRIDGED. */
const HOOKED: BaseChain = { type: 'filter', hook: 'prerouting', priority: -300 };

/** linux/if_ether.h: struct ethhdr { unsigned char h_dest[6], h_source[6]; __be16 h_proto; } */
const SOURCE_OFFSET = 6;
const MAC_BYTES = 6;
/** linux/if.h, IFNAMSIZ: nf_tables compares all of it. */
const NAME_BYTES = 16;

/** True when the reference plugin restricts the attachment to its hardware address. */
export function hasReferenceMacspoof(socket: NetlinkSocket, owner: Owner): boolean {
  if (!hasTable(socket, TABLE)) return false;
  const { comment, chains } = namesOf(owner);
  const found = listRules(socket, TABLE).filter(rule => rule.comment === comment);
  return [PREROUTING, ...chains].every(chain => found.some(rule => rule.chain === chain));
}

/**
 * Restricts the attachment as the reference plugin does, in one transaction.
 * Same as: `iifname <port> jump …`, `jump …-mac`, `ether saddr <mac> return`, `drop`, each with the comment
 */
export function ensureReferenceMacspoof(
  socket: NetlinkSocket,
  owner: Owner,
  port: string,
  mac: string,
): void {
  const { comment, chains } = namesOf(owner);
  const [own = '', ofMac = ''] = chains;
  commitAfterReading(socket, () =>
    hasReferenceMacspoof(socket, owner)
      ? []
      : [
          addTable(TABLE),
          addChain(TABLE, PREROUTING, HOOKED),
          ...[own, ofMac].flatMap(name => [addChain(TABLE, name), flushChain(TABLE, name)]),
          addRule(
            TABLE,
            ofMac,
            [
              loadLinkHeader(REG.first, SOURCE_OFFSET, MAC_BYTES),
              isEqual(REG.first, parseMac(mac)),
              decide({ code: NFT_RETURN }),
            ],
            comment,
          ),
          addRule(TABLE, ofMac, [decide({ code: NF_DROP })], comment),
          addRule(TABLE, own, [decide(jump(ofMac))], comment),
          addRule(
            TABLE,
            PREROUTING,
            [loadMeta(REG.first, 'iifname'), isEqual(REG.first, paddedName(port)), decide(jump(own))],
            comment,
          ),
        ],
  );
}

/**
 * Removes the chains that the reference plugin made for the attachment, and the rule that jumps to them, in one transaction.
 * Table and base chain remain, as after its own DEL.
 */
export function removeReferenceMacspoof(socket: NetlinkSocket, owner: Owner): void {
  if (!hasTable(socket, TABLE)) return;
  const { comment, chains: names } = namesOf(owner);
  commitAfterReading(socket, () => {
    const jumps = listRules(socket, TABLE).filter(
      rule => rule.chain === PREROUTING && rule.comment === comment,
    );
    const chains = listChains(socket, TABLE).flatMap(({ name }) => (names.includes(name) ? [name] : []));
    // The first chain jumps to the second. Rules are deleted before chains, otherwise the kernel reports the chains as in use.
    return [
      ...jumps.map(({ handle }) => deleteRule(TABLE, PREROUTING, handle)),
      ...chains.map(name => flushChain(TABLE, name)),
      ...chains.map(name => deleteChain(TABLE, name)),
    ];
  });
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
  if (!hasTable(socket, TABLE)) return;
  commitAfterReading(socket, () => {
    const jumps = listRules(socket, TABLE).filter(isJump);
    const unused = jumps.filter(rule => !exists(portOf(rule)));
    const present = new Set(listChains(socket, TABLE).map(({ name }) => name));
    const chains = [...new Set(unused.map(targetOf))]
      .flatMap(name => [name, `${name}-mac`])
      .filter(name => present.has(name));
    return [
      ...unused.map(({ handle }) => deleteRule(TABLE, PREROUTING, handle)),
      ...chains.map(name => flushChain(TABLE, name)),
      ...chains.map(name => deleteChain(TABLE, name)),
    ];
  });
}

function paddedName(name: string): Uint8Array {
  const bytes = new Uint8Array(NAME_BYTES);
  new TextEncoder().encodeInto(name, bytes);
  return bytes;
}

/** `iifname "<port>" jump cni-br-iface-…`, with a comment written by the reference. */
function isJump(rule: Rule): boolean {
  return rule.chain === PREROUTING && /^macspoofchk-./.test(rule.comment ?? '') && portOf(rule) !== '';
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
type Owner = Omit<AttachmentId, 'network'>;

function namesOf({ containerId, ifname }: Owner): { comment: string; chains: string[] } {
  const own = `cni-br-iface-${containerId}-${ifname}`;
  return { comment: `macspoofchk-${containerId}-${ifname}`, chains: [own, `${own}-mac`] };
}
