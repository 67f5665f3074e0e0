// Could ADD attach a container now, and when does traffic flow through what it connected?
//
// Bringing an interface up is not enough. The kernel sees the carrier at once but leaves the rest to a work item. Only that
// work item lets the interface send, makes the port forward and gives the bridge its carrier. An earlier packet is dropped,
// and an unanswered neighbour solicitation is repeated only a second later. Since Linux 6.8 the kernel finishes that work
// before it answers a query about the interface, so one query is enough; older kernels are polled. An IPv6 address also
// exists at once, but another work item joins its solicited-node group and then adds the route that delivers packets for it
// locally.

import { attempt } from '../cni/errors.ts';
import type { Log } from '../log.ts';
import { FAMILIES, type Ip, renderIp, sameIp } from '../net/ip.ts';
import { isLegacyDropping } from '../netlink/iptables/nat.ts';
import { renderTable } from '../netlink/nft/message.ts';
import { listDroppingChains } from '../netlink/nft/table.ts';
import { listIpv6Groups } from '../netlink/rtnl/addr.ts';
import { findLinks, getLink, IFF_NOARP, type Link, OPERSTATES, portStateOf } from '../netlink/rtnl/link.ts';
import { findWay } from '../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Call } from '../plugin/define.ts';

/** The work item waits for other device changes, which may take tens of milliseconds each. */
const READY_DEADLINE_MS = 1_000;
const POLL_MS = 1;
/** Most waits are for a work item that takes less time than the shortest timer. */
const SHORT_POLLS = 10;
const SHORT_POLL_MS = 0.1;

/** RFC 4291, 2.7.1: ff02::1:ff00:0/104 */
const SOLICITED_NODE = 0xff0200000000000000000001ff000000n;

/** An interface, the socket to query it with, and those of its addresses that skip duplicate address detection. */
export interface Stage {
  readonly socket: NetlinkSocket;
  readonly link: Pick<Link, 'index' | 'name'>;
  readonly ips: readonly Ip[];
}

/**
 * Waits until each interface sends and receives. Usually costs one request for each.
 * @param stages in the order in which each gives the next its carrier: the container's end, the host's, the bridge
 */
export async function awaitTraffic(log: Log, stages: readonly Stage[]): Promise<void> {
  const giveUpAt = performance.now() + READY_DEADLINE_MS;
  const links = lookAtDevices(stages);
  // Addresses last: the kernel's work for them continues while we check the interfaces.
  for (const look of [lookAtDevice, lookAtAddresses]) {
    for (const [i, stage] of stages.entries()) {
      let seen = look(stage, links[i]);
      for (let polls = 0; seen.problem && performance.now() < giveUpAt; polls++) {
        if (polls < SHORT_POLLS) Atomics.wait(nothing, 0, 0, SHORT_POLL_MS);
        else await Bun.sleep(POLL_MS);
        seen = look(stage);
      }
      if (seen.problem) {
        const waited = `${READY_DEADLINE_MS / 1000} s`;
        log.warn(`"${stage.link.name}" may not forward packets yet: ${seen.problem} after ${waited}`);
        return;
      }
      // Spanning tree listens for half a minute first; an administrator who enabled it knows that.
      if (seen.isListening) return;
    }
  }
}

/** Nothing ever notifies it: waiting on it is a pause shorter than any timer. */
const nothing = new Int32Array(new SharedArrayBuffer(4));

interface Seen {
  readonly problem?: string | undefined;
  /** A port that will start forwarding without our help, but much later. */
  readonly isListening?: boolean;
}

/** Queries all interfaces of one socket at once. */
function lookAtDevices(stages: readonly Stage[]): readonly (Link | undefined)[] {
  const seen = new Map<Stage, Link | undefined>();
  for (const socket of new Set(stages.map(stage => stage.socket))) {
    const own = stages.filter(stage => stage.socket === socket);
    const indexes = own.map(({ link }) => link.index);
    for (const [i, link] of findLinks(socket, indexes).entries()) seen.set(own[i] as Stage, link);
  }
  return stages.map(stage => seen.get(stage));
}

function lookAtDevice({ socket, link }: Stage, seen = getLink(socket, link.index)): Seen {
  const state = OPERSTATES[seen.attrs.operstate ?? 0] ?? 'unknown';
  if (state !== 'up' && state !== 'unknown') return { problem: `its state is "${state}"` };
  const portState = portStateOf(seen);
  if (portState === 'disabled') return { problem: 'its bridge port is disabled' };
  return { isListening: portState !== undefined && portState !== 'forwarding' };
}

function lookAtAddresses({ socket, link, ips }: Stage, known?: Link): Seen {
  const asked = ips.filter(({ family }) => family === 6);
  if (asked.length === 0) return {};
  const seen = known ?? getLink(socket, link.index);
  // Without neighbours, the kernel joins no group for their solicitations.
  const groups = seen.flags & IFF_NOARP ? undefined : listIpv6Groups(socket, link.index);
  // Another interface may have the same address and a route for it: a host has one gateway address on many pairs.
  const unheard = groups && asked.find(ip => !groups.some(group => sameIp(group, solicitedNodeOf(ip))));
  // The kernel may not yet deliver it locally. Routes of a VRF are in a table of their own.
  const isUnled = (ip: Ip) => seen.master === 0 && !findWay(socket, ip)?.local;
  const strange = unheard ?? asked.find(isUnled);
  return { problem: strange && `it does not answer neighbour solicitations for ${renderIp(strange)}` };
}

function solicitedNodeOf({ value }: Ip): Ip {
  return { family: 6, value: SOLICITED_NODE | (value & 0xffffffn) };
}

/**
 * Warns of chains that drop forwarded packets which none of their own rules accepts. A packet must pass every table: once
 * one of them drops it, no rule elsewhere can accept it.
 * @param isTold omits the iptables `FORWARD` chains, which contain the pods' rules
 */
export function warnOfDroppingChains(call: Call, isTold = false): void {
  for (const place of [...listDropping(call, isTold), ...(isTold ? [] : listLegacyDropping())]) {
    call.log.warn(`${place} drops forwarded packets that none of its rules accepts`, {
      hint: 'packets of pods pass only if one of its rules accepts them; the firewall plugin adds such a rule to iptables',
    });
  }
}

function listDropping(call: Call, isTold: boolean): string[] {
  // A kernel without nf_tables drops nothing there; code that needs nf_tables reports its absence itself.
  const chains = attempt(() => listDroppingChains(call.hostNft, 'forward')) ?? [];
  return chains
    .filter(({ table, chain }) => !(isTold && table.name === 'filter' && chain === 'FORWARD'))
    .map(({ table, chain }) => `chain "${chain}" of table ${renderTable(table)}`);
}

function listLegacyDropping(): string[] {
  return FAMILIES.filter(family => isLegacyDropping(family)).map(
    family => `chain "FORWARD" of ip${family === 4 ? '' : '6'}tables-legacy`,
  );
}
