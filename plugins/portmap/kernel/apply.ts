// How does an attachment get its ports and lose them, whichever packet filter forwards them?
import type { Attachment } from '../../../src/cni/attachment.ts';
import { runDir } from '../../../src/cni/directories.ts';
import type { Ip } from '../../../src/net/ip.ts';
import { inTurn } from '../../../src/netlink/iptables/turn.ts';
import { listTables } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { tryAll } from '../../../src/plugin/try-all.ts';
import { type Owner, ownerOf } from '../elements.ts';
import type { IptablesOptions } from '../iptables-rules.ts';
import { soleOwner } from '../reference-names.ts';
import { TABLE } from '../sets.ts';
import { sweepConditions } from './asking.ts';
import { chainOwnerOf, chainsOf } from './chains.ts';
import { type Claimed, claimPorts, SuspectError, type Wanted } from './claim.ts';
import type { Lost } from './flows.ts';
import { addIptablesPorts } from './iptables.ts';
import { sweepHostportRules } from './leftovers.ts';
import { removeHostportRules, removeIptablesPorts, sweepIptablesPorts } from './reference.ts';
import { findClaims, findDead, releasePorts, sweepElements } from './release.ts';

/**
 * Claims host ports, and has them forwarded.
 * @param onClaimed called once there is something to take back
 * @returns host ports that lead elsewhere now, or nowhere
 * @throws CniError 100 when somebody else holds a host port
 */
export function applyPorts(
  nft: NetlinkSocket,
  wanted: Wanted,
  options: IptablesOptions,
  onClaimed: () => void,
): Lost[] {
  const { owner, plans, means } = wanted;
  const finish = ({ gone, chains }: Claimed): Lost[] => {
    onClaimed();
    return [...gone, ...chains.flatMap(chain => removeIptablesPorts(nft, chain))];
  };
  if (means.backend === 'nftables') return finish(claimPatiently(nft, wanted));
  return alone(() => {
    const lost = finish(claimPorts(nft, wanted, true));
    if (owner.attachment) addIptablesPorts(nft, plans, chainOwnerOf(nft, owner, owner.attachment), options);
    return lost;
  });
}

/**
 * Removes what there is of an attachment, whoever made it and with which packet filter.
 * @param pods its addresses on this network, which tell which rules are meant in the reference's own table
 * @param onLost told of host ports that lead nowhere now
 */
export async function removePorts(
  nft: NetlinkSocket,
  owner: Owner,
  pods: readonly Ip[],
  onLost: (lost: readonly Lost[]) => void,
): Promise<void> {
  const { attachment } = owner;
  const tables = listTables(nft);
  const isKnown = tables.has(TABLE);
  const shared = attachment ? [attachment] : [];
  const chains = isKnown ? chainsOf(nft, owner) : shared;
  await tryAll([
    () => onLost(chains.flatMap(chain => removeIptablesPorts(nft, chain, tables))),
    // Rules first: what the sets know is needed to try again.
    () => onLost(isKnown ? releasePorts(nft, owner) : []),
    () => onLost(attachment ? removeHostportRules(nft, attachment.containerId, pods, tables) : []),
  ]);
}

/**
 * Removes everything of attachments of a network that are not among the valid ones, and what the reference left of
 * containers that are gone.
 * @param onLost told of host ports that lead nowhere now
 */
export async function sweepPorts(
  nft: NetlinkSocket,
  network: string,
  valid: readonly Attachment[],
  onLost: (lost: readonly Lost[]) => void,
): Promise<void> {
  const notes = new Set(valid.map(one => ownerOf(one).note));
  const chains = new Set(valid.flatMap(one => [one, soleOwner(one)]).map(one => one.containerId));
  await tryAll([
    ...findDead(nft, network, notes).map(owner => () => {
      const inIptables = findClaims(nft, owner).some(({ backend }) => backend === 'iptables');
      const own = inIptables ? chainsOf(nft, owner) : [];
      onLost(own.flatMap(chain => removeIptablesPorts(nft, chain)));
      onLost(releasePorts(nft, owner));
    }),
    () => sweepElements(nft, network, notes),
    () => sweepConditions(nft),
    () => onLost(sweepIptablesPorts(nft, network, chains)),
    () => onLost(sweepHostportRules(nft, valid)),
  ]);
}

/** Who has no rules in iptables may be about to write them: then it is worth to wait. */
function claimPatiently(nft: NetlinkSocket, wanted: Wanted): Claimed {
  try {
    return claimPorts(nft, wanted, false);
  } catch (thrown) {
    if (!(thrown instanceof SuspectError)) throw thrown;
    return alone(() => claimPorts(nft, wanted, true));
  }
}

/** From the claim of ports to the rules of iptables for them, one at a time. */
function alone<T>(work: () => T): T {
  return inTurn(runDir(), 'portmap', work);
}
