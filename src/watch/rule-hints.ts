// What does a notification of nf_tables say about attachments?
import { findOwner } from '../cni/attachment.ts';
import type { Envelope } from '../netlink/codec/message.ts';
import {
  decodeNftAddition,
  decodeNftDeletion,
  decodeNftSetAddition,
  type NftDeletion,
} from '../netlink/nft/notification.ts';
import type { Hint } from './hint.ts';

/** Prefix of the tables that our plugins make. */
const OWN = 'catena_';
/**
 * Tables of the reference's plugins, those of iptables-nft, and firewalld's, which has pods as sources of a zone: rules of
 * attachments are among many others there.
 */
const SHARED = /^(cni_.*|nat|filter|mangle|raw|security|firewalld)$/;
/** Chains of kubelet and kube-proxy, which writes all of them again at each change of a service. No plugin has a rule there. */
const FOREIGN_CHAIN = /^KUBE-/;

/**
 * A firewalld that starts, or has reloaded, rejects pods that it does not know. While it reloads, nothing of it exists, so what was checked
 * then is checked again. With iptables its rules are in this chain.
 */
const FIREWALLD = { table: 'firewalld', chain: 'FORWARD_ZONES' };

/** Hints from notifications of nf_tables. An element of another owner's table, or a rule added by others, is none. */
export function hintsOfRules(messages: readonly Envelope[]): Hint[] {
  const hints: Hint[] = [];
  for (const message of messages) {
    const { table: added, chain } = decodeNftAddition(message) ?? {};
    if (added === FIREWALLD.table || chain === FIREWALLD.chain)
      hints.push({ of: 'all', isLikely: false, why: 'firewalld' });
    const deletion = decodeNftDeletion(message, table => table.startsWith(OWN) || SHARED.test(table));
    if (deletion !== undefined) hints.push(...hintsOfDeletion(deletion, messages));
  }
  return hints;
}

function hintsOfDeletion(deletion: NftDeletion, messages: readonly Envelope[]): Hint[] {
  const { table, chain, comments } = deletion;
  const isOwn = table.startsWith(OWN);
  if (!isOwn && chain !== undefined && FOREIGN_CHAIN.test(chain)) return [];
  const owners = comments?.map(findOwner);
  if (owners?.length && owners.every(owner => owner !== undefined))
    return owners.map(owner => ({ of: 'owner', owner, table }));
  if (isOwn && comments?.length === 0) return isRenewed(deletion, messages) ? [] : [{ of: 'shared', table }];
  return [{ of: 'all', isLikely: isOwn && owners === undefined, why: `table "${table}"` }];
}

/** A count that changes is deleted and added in one transaction. */
function isRenewed({ table, set }: NftDeletion, messages: readonly Envelope[]): boolean {
  return messages.some(message => {
    const added = decodeNftSetAddition(message);
    return added?.table === table && added.set === set;
  });
}
