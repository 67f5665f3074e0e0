// How does an attachment get its ports and lose them, whichever packet filter forwards them?
import { readdirSync } from 'node:fs';
import { cniCacheDir, runDir } from '../../../src/cni/directories.ts';
import { findHolders } from '../../../src/ipam/holders.ts';
import { FAMILIES, type Ip, renderIp } from '../../../src/net/ip.ts';
import { decodeNatRule } from '../../../src/netlink/iptables/nat.ts';
import { inTurn } from '../../../src/netlink/iptables/program.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { listRules, listTables } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { KeptAttachments } from '../../../src/plugin/define.ts';
import { tryAll } from '../../../src/plugin/steps.ts';
import { hostportTable, type IptablesOptions, soleOwner } from '../iptables-rules.ts';
import { type Owner, ownerOfNote } from '../plan.ts';
import { SETS, TABLE } from '../sets.ts';
import { type Claimed, claimPorts, SuspectError, sweepConditions, type WantedPorts } from './claim.ts';
import type { Lost } from './flows.ts';
import { addIptablesPorts, chainOwnerOf, chainsOf, forwardInLegacy } from './iptables.ts';
import { removeHostportRules, removeIptablesPorts, sweepIptablesPorts } from './reference.ts';
import { findClaims, findDead, releasePorts, sweepElements } from './release.ts';

/**
 * Claims host ports and has them forwarded.
 * @param onClaimed called once there is something to undo
 * @returns host ports that are now forwarded elsewhere, or no longer forwarded
 * @throws CniError 100 when another attachment holds a host port
 */
export function applyPorts(
  nft: NetlinkSocket,
  wanted: WantedPorts,
  options: IptablesOptions,
  onClaimed: () => void,
): Lost[] {
  const { owner, plans, means } = wanted;
  const finish = ({ gone, chains, strangers }: Claimed): Lost[] => {
    onClaimed();
    return [
      ...gone,
      ...chains.flatMap(chain => removeIptablesPorts(nft, chain)),
      ...strangers.flatMap(({ containerId, pod }) => removeHostportRules(nft, containerId, [pod])),
    ];
  };
  if (means.backend === 'nftables') {
    const lost = finish(claimPatiently(nft, wanted));
    forwardInLegacy(plans.map(({ family }) => family));
    return lost;
  }
  return alone(() => {
    const lost = finish(claimPorts(nft, wanted, true));
    if (owner.attachment) addIptablesPorts(nft, plans, chainOwnerOf(nft, owner, owner.attachment), options);
    return lost;
  });
}

/**
 * Removes everything of an attachment, whichever plugin made it and with whichever packet filter.
 * @param pods its addresses on this network, which identify its rules in the reference's own table
 * @param onLost called with host ports that are no longer forwarded
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
    // Rules first: a retry needs what the sets record.
    () => onLost(isKnown ? releasePorts(nft, owner) : []),
    () => onLost(attachment ? removeHostportRules(nft, attachment.containerId, pods, tables) : []),
  ]);
}

/**
 * Removes everything of the network's attachments that GC does not keep, and what the reference left of containers that no longer
 * exist.
 * @param onLost called with host ports that are no longer forwarded
 */
export async function sweepPorts(
  nft: NetlinkSocket,
  network: string,
  kept: KeptAttachments,
  onLost: (lost: readonly Lost[]) => void,
): Promise<void> {
  const isKept = (containerId: string) =>
    kept.some(one => one.containerId === containerId || soleOwner(one).containerId === containerId);
  await tryAll([
    ...findDead(nft, network, kept).map(owner => () => {
      const inIptables = findClaims(nft, owner).some(({ backend }) => backend === 'iptables');
      const own = inIptables ? chainsOf(nft, owner) : [];
      onLost(own.flatMap(chain => removeIptablesPorts(nft, chain)));
      onLost(releasePorts(nft, owner));
    }),
    () => sweepElements(nft, network, kept),
    () => sweepConditions(nft),
    () => onLost(sweepIptablesPorts(nft, network, isKept)),
    () => onLost(sweepHostportRules(nft, kept)),
  ]);
}

/** A holder without rules in iptables may be about to write them, so waiting for its turn to end is worthwhile. */
function claimPatiently(nft: NetlinkSocket, wanted: WantedPorts): Claimed {
  try {
    return claimPorts(nft, wanted, false);
  } catch (thrown) {
    if (!(thrown instanceof SuspectError)) throw thrown;
    return alone(() => claimPorts(nft, wanted, true));
  }
}

/** Serializes processes from the claim of ports to their iptables rules. */
function alone<T>(work: () => T): T {
  return inTurn(runDir(), 'portmap', work);
}

/**
 * Removes rules of containers that certainly no longer exist. The rules name a container but no network, so not being among the
 * valid attachments of one network is not sufficient: another container must have the address now, or the runtime must have no
 * record of the container in any network.
 * @returns the host ports that were forwarded
 */
function sweepHostportRules(socket: NetlinkSocket, kept: KeptAttachments): Lost[] {
  const suspects = podsByContainer(socket).filter(
    ({ containerId }) => !kept.some(one => one.containerId === containerId),
  );
  if (suspects.length === 0) return [];
  const isForgotten = forgottenBy(recordsOf(kept));
  // A runtime writes its record only after the last plugin, so a container that is being attached has none yet.
  const holders = findHolders();
  const isInUse = (pod: Ip) => holders?.get(renderIp(pod))?.some(({ isHere }) => !isHere) ?? false;
  return suspects.flatMap(({ containerId, pods }) => {
    if (isForgotten(containerId) && !pods.some(isInUse)) return removeHostportRules(socket, containerId, []);
    const moved = pods.filter(pod => isAnothers(socket, pod, containerId));
    return moved.length ? removeHostportRules(socket, containerId, moved) : [];
  });
}

interface Suspect {
  readonly containerId: string;
  readonly pods: readonly Ip[];
}

function podsByContainer(socket: NetlinkSocket): Suspect[] {
  const found = new Map<string, Ip[]>();
  for (const family of FAMILIES) {
    for (const rule of listRules(socket, hostportTable(family), 'hostports')) {
      const { comment, to } = decodeNatRule(family, rule);
      if (comment === undefined || to === undefined) continue;
      found.set(comment, [...(found.get(comment) ?? []), to]);
    }
  }
  return [...found].map(([containerId, pods]) => ({ containerId, pods }));
}

/** Names of libcni's cached results, `<network>-<container>-<interface>`; undefined if they are not stored where we look. */
function recordsOf(kept: KeptAttachments): readonly string[] | undefined {
  try {
    const names = readdirSync(`${cniCacheDir()}/results`);
    const isElsewhere = kept.some(
      ({ network, containerId, ifname }) => !names.includes(`${network}-${containerId}-${ifname}`),
    );
    return isElsewhere ? undefined : names;
  } catch {
    return undefined;
  }
}

function forgottenBy(records: readonly string[] | undefined): (containerId: string) => boolean {
  return containerId => records !== undefined && !records.some(name => name.includes(`-${containerId}-`));
}

function isAnothers(socket: NetlinkSocket, pod: Ip, containerId: string): boolean {
  const note = findElement(socket, SETS[pod.family].pods, [pod])?.comment;
  const holder = note === undefined ? undefined : ownerOfNote(note).attachment;
  return holder !== undefined && holder.containerId !== containerId;
}
