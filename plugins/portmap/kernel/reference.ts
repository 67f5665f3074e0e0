// How are port mappings removed that iptables holds, or that the reference plugin made in nf_tables?

import { readdirSync } from 'node:fs';
import type { ChainOwner } from '../../../src/attach/owner.ts';
import { cniCacheDir, runDir } from '../../../src/cni/directories.ts';
import type { HandoverMode } from '../../../src/cni/env.ts';
import { attempt, CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { findUse } from '../../../src/ipam/holders.ts';
import { FAMILIES, type Family, type Ip, ipToBytes, renderIp } from '../../../src/net/ip.ts';
import {
  decodeNatRule,
  listLegacyNat,
  listNftNat,
  type NatRule,
  natTable,
} from '../../../src/netlink/iptables/nat.ts';
import { inTurn, restoreNat } from '../../../src/netlink/iptables/program.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { commitAfterReading } from '../../../src/netlink/nft/message.ts';
import {
  deleteChain,
  deleteRule,
  flushChain,
  hasChain,
  listRules,
  listTables,
  type Rule,
} from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { KeptAttachments } from '../../../src/plugin/define.ts';
import { iptablesOptionsOf, type PortmapConf } from '../config.ts';
import { dnatChain, hostportTable, ownerIn, SHARED, snatChainOf } from '../iptables-rules.ts';
import { type Owner, ownerOfNote, protocolName, renderHostPort } from '../plan.ts';
import { SETS } from '../sets.ts';
import type { WantedPorts } from './claim.ts';
import type { Lost } from './flows.ts';
import { addIptablesPorts, chainOwnerOf, checkIptablesPorts } from './iptables.ts';
import { findClaims, releasePorts } from './release.ts';

/** Legacy iptables rules are removed by number. A concurrent change shifts the numbers, so the removal is retried. */
const ATTEMPTS = 5;
/** Chains of the reference's own table whose rules name a container. */
const HOSTPORT_CHAINS = ['hostports', 'hostip_hostports', 'masquerading'];

/**
 * Removes the chains of a container from the table "nat", whichever plugin made them and whichever packet filter holds them.
 * Costs next to nothing if there are none; a program is only started for legacy iptables.
 * @param tables those of nf_tables, if already known
 * @returns the host ports that were forwarded
 */
export function removeIptablesPorts(
  socket: NetlinkSocket,
  owner: ChainOwner,
  tables = listTables(socket),
): Lost[] {
  return FAMILIES.flatMap(family =>
    (
      [
        [dnatChain(owner), SHARED.dnat],
        [snatChainOf(owner), SHARED.snat],
      ] as const
    ).flatMap(([chain, parent]) => [
      // Both, even if the first had chains: the host may have changed its packet filter.
      ...(tables.has(natTable(family)) ? removeNftChain(socket, family, chain, parent) : []),
      ...removeLegacyChain(family, chain, parent),
    ]),
  );
}

/**
 * Removes the chains of a network's containers that GC does not keep.
 * @param isKept called after the chains were listed
 * @returns the host ports that were forwarded
 */
export function sweepIptablesPorts(
  socket: NetlinkSocket,
  network: string,
  isKept: (containerId: string) => boolean,
): Lost[] {
  const stale = new Map<string, ChainOwner>();
  for (const family of FAMILIES) {
    for (const { chain, comment, target } of [
      ...listNftNat(socket, family, SHARED.dnat),
      ...listLegacyNat(family),
    ]) {
      const owner = chain === SHARED.dnat ? ownerIn(comment) : undefined;
      if (owner?.network !== network || isKept(owner.containerId)) continue;
      // A comment may hold anything; the name of the chain follows from network and container.
      if (target === dnatChain(owner)) stale.set(target, owner);
    }
  }
  return [...stale.values()].flatMap(owner => removeIptablesPorts(socket, owner));
}

/**
 * Removes the rules with a container's id from the reference's nf_tables table. They do not name the network, so the addresses
 * have to distinguish between the networks of the container.
 * @param pods the container's addresses on this network; empty for all rules of the container
 * @param tables those of nf_tables, if already known
 * @returns the host ports that were forwarded
 */
export function removeHostportRules(
  socket: NetlinkSocket,
  containerId: string,
  pods: readonly Ip[],
  tables = listTables(socket),
): Lost[] {
  return FAMILIES.flatMap(family => {
    const table = hostportTable(family);
    if (!tables.has(table)) return [];
    const addresses = pods.filter(ip => ip.family === family).map(ipToBytes);
    // A container without an address of this family can have such rules only from another network.
    if (pods.length && addresses.length === 0) return [];
    let rules: Rule[] = [];
    commitAfterReading(socket, () => {
      rules = listRules(socket, table)
        .filter(({ chain, comment }) => comment === containerId && HOSTPORT_CHAINS.includes(chain))
        .filter(rule => addresses.length === 0 || addresses.some(address => speaksOf(rule, address)));
      return rules.map(({ chain, handle }) => deleteRule(table, chain, handle));
    });
    return rules.flatMap(rule => lostWith(family, decodeNatRule(family, rule)));
  });
}

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
  const records = recordsOf(kept);
  const isForgotten = (id: string) => records?.every(name => !name.includes(`-${id}-`));
  // A runtime writes its record only after the last plugin, so a container that is being attached has none yet.
  const holders = findUse()?.holders;
  const isInUse = (pod: Ip) => holders?.get(renderIp(pod))?.some(({ isHere }) => !isHere) ?? false;
  return suspects.flatMap(({ containerId, pods }) => {
    if (isForgotten(containerId) && !pods.some(isInUse)) return removeHostportRules(socket, containerId, []);
    const moved = pods.filter(pod => isAnothers(socket, pod, containerId));
    return moved.length ? removeHostportRules(socket, containerId, moved) : [];
  });
}

function podsByContainer(socket: NetlinkSocket) {
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
  const names = attempt(() => readdirSync(`${cniCacheDir()}/results`));
  const isElsewhere = kept.some(
    ({ network, containerId, ifname }) => !names?.includes(`${network}-${containerId}-${ifname}`),
  );
  return isElsewhere ? undefined : names;
}

function isAnothers(socket: NetlinkSocket, pod: Ip, containerId: string): boolean {
  const note = findElement(socket, SETS[pod.family].pods, [pod])?.comment;
  const holder = note === undefined ? undefined : ownerOfNote(note).attachment;
  return holder !== undefined && holder.containerId !== containerId;
}

/** Deletes by handle, so no program is needed. */
function removeNftChain(socket: NetlinkSocket, family: Family, chain: string, parent: string): Lost[] {
  const table = natTable(family);
  if (!hasChain(socket, table, chain)) return [];
  let lost: Lost[] = [];
  commitAfterReading(socket, () => {
    if (!hasChain(socket, table, chain)) return [];
    lost = listNftNat(socket, family, chain).flatMap(rule => lostWith(family, rule));
    const entries = listNftNat(socket, family, parent).filter(({ target }) => target === chain);
    return [
      ...entries.map(({ handle }) => deleteRule(table, parent, handle)),
      flushChain(table, chain),
      deleteChain(table, chain),
    ];
  });
  return lost;
}

/** A chain that is still jumped to cannot be deleted, so a wrong rule number makes the whole transaction fail without a change. */
function removeLegacyChain(family: Family, chain: string, parent: string): Lost[] {
  for (let attempt = 1; ; attempt++) {
    const rules = listLegacyNat(family);
    const own = rules.filter(rule => rule.chain === chain);
    if (own.length === 0) return [];
    const entries = rules.filter(rule => rule.chain === parent);
    const numbers = entries.flatMap((rule: NatRule, i) => (rule.target === chain ? [i + 1] : []));
    try {
      restoreNat(
        family,
        [...numbers.reverse().map(number => `-D ${parent} ${number}`), `-F ${chain}`, `-X ${chain}`],
        'legacy',
      );
      return own.flatMap(rule => lostWith(family, rule));
    } catch (thrown) {
      if (attempt === ATTEMPTS) throw thrown;
    }
  }
}

function lostWith(family: Family, { target, to, protocol, ports = [] }: NatRule): Lost[] {
  const name = protocolName(protocol);
  if (target !== 'DNAT' || to === undefined || name === undefined) return [];
  return ports.map(port => ({ family, protocol: name, port, pod: to }));
}

/** Addresses that are adjacent in a packet are compared as one value. */
function speaksOf({ expressions }: Rule, address: Uint8Array): boolean {
  return valuesIn(expressions).some(value => {
    for (let at = 0; at + address.length <= value.length; at += address.length) {
      if (address.every((byte, i) => value[at + i] === byte)) return true;
    }
    return false;
  });
}

function valuesIn(node: unknown): Uint8Array[] {
  if (node instanceof Uint8Array) return [node];
  if (typeof node !== 'object' || node === null) return [];
  return Object.values(node).flatMap(valuesIn);
}

/**
 * Has iptables forward the attachment's ports in the reference's chain, then removes them from our sets. For a moment both
 * forward to the same place; at no moment does neither. Open connections keep their translation.
 * @param readWanted called when there is something to hand over: an invalid configuration must not hide that
 * @returns what was in our sets
 * @throws CniError 2 for what the reference cannot express or delete
 */
export function handOverPorts(
  nft: NetlinkSocket,
  readWanted: () => WantedPorts,
  owner: Owner,
  conf: PortmapConf,
  mode: HandoverMode,
): string[] {
  const claims = findClaims(nft, owner);
  if (claims.length === 0) return [];
  const parts = claims.map(claim => `host port ${renderHostPort(claim)}`);
  const { attachment } = owner;
  const wanted = readWanted();
  if (wanted.conditions.length) {
    throw cannot('its conditions are in nft syntax, which iptables rules do not have');
  }
  if (attachment === undefined) throw cannot('the container id is too long to be found in its rules');
  if (chainOwnerOf(nft, owner, attachment) !== attachment) {
    throw cannot('another interface of the container has the chain that the reference would delete');
  }
  if (mode === 'look') return [...new Set(parts)];
  inTurn(runDir(), 'portmap', () => {
    const options = iptablesOptionsOf(conf);
    for (const plan of wanted.plans) {
      try {
        checkIptablesPorts(nft, [plan], attachment, options, 'reference');
      } catch {
        addIptablesPorts(nft, [plan], attachment, options);
      }
    }
    // Rules first: a retry needs what the sets record.
    const released = releasePorts(nft, owner);
    // A concurrent DEL has looked for the rules before they existed.
    if (released.length === 0) removeIptablesPorts(nft, attachment);
  });
  return [...new Set(parts)];
}

function cannot(why: string): CniError {
  return new CniError(
    ErrorCode.unsupportedField,
    `Cannot hand host ports over to the reference's portmap: ${why}`,
    {
      details: 'delete the pod before you remove these plugins',
    },
  );
}
