// Which remembered UDP flows contradict the mappings of today, and how do they go?
import { type Ip, renderIp, sameIp } from '../../../src/net/ip.ts';
import { type Flow, listFlows, removeFlow } from '../../../src/netlink/conntrack.ts';
import { findWay } from '../../../src/netlink/rtnl/route-lookup.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Claim } from '../elements.ts';
import { type FamilyPlan, type Forward, PROTOCOLS } from '../plan.ts';

/** rtnetlink and netfilter of the host. */
export interface HostSockets {
  readonly host: NetlinkSocket;
  readonly hostNft: NetlinkSocket;
}

/**
 * Makes the kernel forget UDP flows that go on as they began, though the mapping has changed since: those to a host port
 * that now leads to a pod, and those to pods by claims that went. Flows that go where they should stay.
 */
export function forgetStaleFlows(
  sockets: HostSockets,
  plans: readonly FamilyPlan[],
  gone: readonly Claim[],
): void {
  const { host, hostNft } = sockets;
  const isWanted = (flow: Flow) => plans.some(plan => leadsTo(flow, plan));
  for (const { family, forwards } of plans) {
    for (const { protocol, port, ip } of forwards) {
      if (protocol !== 'udp') continue;
      const isStale = ip ? (flow: Flow) => sameIp(flow.destination, ip) : localDestinations(host);
      forget(hostNft, family, port, flow => isStale(flow) && !isWanted(flow));
    }
  }
  for (const { family, protocol, port, pod } of gone) {
    if (protocol === 'udp')
      forget(hostNft, family, port, flow => sameIp(flow.responder, pod) && !isWanted(flow));
  }
}

function forget(socket: NetlinkSocket, family: 4 | 6, port: number, isStale: (flow: Flow) => boolean): void {
  for (const flow of listFlows(socket, { family, protocol: PROTOCOLS.udp, port })) {
    if (isStale(flow)) removeFlow(socket, flow);
  }
}

/** Flows through this host to the same port of others are none of our business. */
function localDestinations(host: NetlinkSocket): (flow: Flow) => boolean {
  const known = new Map<string, boolean>();
  const isLocal = (address: Ip): boolean => {
    const text = renderIp(address);
    const local = known.get(text) ?? findWay(host, address)?.local ?? false;
    known.set(text, local);
    return local;
  };
  return flow => isLocal(flow.destination);
}

function leadsTo(flow: Flow, { family, pod, forwards }: FamilyPlan): boolean {
  if (flow.family !== family || !sameIp(flow.responder, pod.ip)) return false;
  const serves = ({ protocol, port, ip, containerPort }: Forward) =>
    protocol === 'udp' &&
    port === flow.destinationPort &&
    containerPort === flow.responderPort &&
    (ip === undefined || sameIp(ip, flow.destination));
  return forwards.some(serves);
}
