// Which rules in the reference's own table of nf_tables are of containers that are gone?
import { readdirSync } from 'node:fs';
import type { Attachment } from '../../../src/cni/attachment.ts';
import { cniCacheDir } from '../../../src/cni/directories.ts';
import type { Ip } from '../../../src/net/ip.ts';
import { decodeNatRule } from '../../../src/netlink/iptables/nft.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { listRules } from '../../../src/netlink/nft/rule.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { ownerOfNote } from '../elements.ts';
import { hostportTable } from '../reference-names.ts';
import { SETS } from '../sets.ts';
import type { Lost } from './flows.ts';
import { removeHostportRules } from './reference.ts';

/**
 * Removes rules of containers that are surely gone. They name a container but no network, so that not being among the
 * valid ones of a network is not enough: the address must have gone to another container, or the runtime must have
 * forgotten the container in every network.
 * @returns the host ports that were forwarded
 */
export function sweepHostportRules(socket: NetlinkSocket, valid: readonly Attachment[]): Lost[] {
  const kept = new Set(valid.map(({ containerId }) => containerId));
  const suspects = podsByContainer(socket).filter(({ containerId }) => !kept.has(containerId));
  if (suspects.length === 0) return [];
  const isForgotten = forgottenBy(recordsOf(valid));
  return suspects.flatMap(({ containerId, pods }) => {
    if (isForgotten(containerId)) return removeHostportRules(socket, containerId, []);
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
  for (const family of [4, 6] as const) {
    for (const rule of listRules(socket, hostportTable(family), 'hostports')) {
      const { comment, to } = decodeNatRule(family, rule);
      if (comment === undefined || to === undefined) continue;
      found.set(comment, [...(found.get(comment) ?? []), to]);
    }
  }
  return [...found].map(([containerId, pods]) => ({ containerId, pods }));
}

/** Names of libcni's records, `<network>-<container>-<interface>`; none unless they are kept where we look. */
function recordsOf(valid: readonly Attachment[]): readonly string[] | undefined {
  try {
    const names = readdirSync(`${cniCacheDir()}/results`);
    const isKeptHere = valid.every(({ network, containerId, ifname }) =>
      names.includes(`${network}-${containerId}-${ifname}`),
    );
    return isKeptHere ? names : undefined;
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
