// Which rules in the reference's own nf_tables table belong to containers that no longer exist?
import { readdirSync } from 'node:fs';
import { cniCacheDir } from '../../../src/cni/directories.ts';
import { findHolders } from '../../../src/ipam/holders.ts';
import { FAMILIES, type Ip, renderIp } from '../../../src/net/ip.ts';
import { decodeNatRule } from '../../../src/netlink/iptables/nft.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { listRules } from '../../../src/netlink/nft/rule.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { KeptAttachments } from '../../../src/plugin/kept.ts';
import { ownerOfNote } from '../elements.ts';
import { hostportTable } from '../reference-names.ts';
import { SETS } from '../sets.ts';
import type { Lost } from './flows.ts';
import { removeHostportRules } from './reference.ts';

/**
 * Removes rules of containers that certainly no longer exist. The rules name a container but no network, so not being among the
 * valid attachments of one network is not sufficient: another container must have the address now, or the runtime must have no
 * record of the container in any network.
 * @returns the host ports that were forwarded
 */
export function sweepHostportRules(socket: NetlinkSocket, kept: KeptAttachments): Lost[] {
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
