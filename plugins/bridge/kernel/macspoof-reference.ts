// What does the reference plugin leave of its anti-spoofing, and how does it go?
import type { Attachment } from '../../../src/cni/attachment.ts';
import { commitAfterReading } from '../../../src/netlink/nft/batch.ts';
import { deleteChain, listChains } from '../../../src/netlink/nft/chain.ts';
import type { Table } from '../../../src/netlink/nft/message.ts';
import { deleteRule, flushChain, listRules, type Rule } from '../../../src/netlink/nft/rule.ts';
import { hasTable } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';

/** It is a table that others may use as well. */
const TABLE: Table = { family: 'bridge', name: 'nat' };
const PREROUTING = 'PREROUTING';

/** True when the reference plugin restricts the attachment to its hardware address. */
export function hasReferenceMacspoof(socket: NetlinkSocket, owner: Owner): boolean {
  if (!hasTable(socket, TABLE)) return false;
  const { comment, chains } = namesOf(owner);
  const found = listRules(socket, TABLE).filter(rule => rule.comment === comment);
  return [PREROUTING, ...chains].every(chain => found.some(rule => rule.chain === chain));
}

/**
 * Removes the chains that the reference plugin made for the attachment, and the rule that leads to them, in one
 * transaction. Table and base chain stay, as after its own DEL.
 */
export function removeReferenceMacspoof(socket: NetlinkSocket, owner: Owner): void {
  if (!hasTable(socket, TABLE)) return;
  const { comment, chains: names } = namesOf(owner);
  commitAfterReading(socket, () => {
    const jumps = listRules(socket, TABLE).filter(
      rule => rule.chain === PREROUTING && rule.comment === comment,
    );
    const chains = listChains(socket, TABLE).flatMap(({ name }) => (names.includes(name) ? [name] : []));
    // The first chain leads to the second: rules go before chains, or the kernel says that they are in use.
    return [
      ...jumps.map(({ handle }) => deleteRule(TABLE, PREROUTING, handle)),
      ...chains.map(name => flushChain(TABLE, name)),
      ...chains.map(name => deleteChain(TABLE, name)),
    ];
  });
}

/**
 * Removes the chains of attachments whose port is gone. They do not say to which network they belong, but nothing comes
 * in through a port that does not exist.
 * @param exists tells whether the host has a link of that name
 */
export function removeOrphanedReferenceMacspoof(
  socket: NetlinkSocket,
  exists: (port: string) => boolean,
): void {
  if (!hasTable(socket, TABLE)) return;
  commitAfterReading(socket, () => {
    const jumps = listRules(socket, TABLE).filter(isJump);
    const orphans = jumps.filter(rule => !exists(portOf(rule)));
    const present = new Set(listChains(socket, TABLE).map(({ name }) => name));
    const chains = [...new Set(orphans.map(targetOf))]
      .flatMap(name => [name, `${name}-mac`])
      .filter(name => present.has(name));
    return [
      ...orphans.map(({ handle }) => deleteRule(TABLE, PREROUTING, handle)),
      ...chains.map(name => flushChain(TABLE, name)),
      ...chains.map(name => deleteChain(TABLE, name)),
    ];
  });
}

/** `iifname "<port>" jump cni-br-iface-…`, with a comment of the reference's. */
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

/** Chains and comments do not say to which network they belong. */
type Owner = Omit<Attachment, 'network'>;

function namesOf({ containerId, ifname }: Owner): { comment: string; chains: string[] } {
  const own = `cni-br-iface-${containerId}-${ifname}`;
  return { comment: `macspoofchk-${containerId}-${ifname}`, chains: [own, `${own}-mac`] };
}
