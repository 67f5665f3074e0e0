// Which remembered UDP flows contradict the mappings of today, and how do they go?
import { type Ip, renderIp, sameIp } from '../../../src/net/ip.ts';
import { type Flow, hasFlows, listFlows, removeFlow } from '../../../src/netlink/conntrack.ts';
import { findWay } from '../../../src/netlink/rtnl/route-lookup.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { type FamilyPlan, type Forward, type HostPort, PROTOCOLS } from '../plan.ts';

/** rtnetlink and netfilter of the host. */
export interface HostSockets {
  readonly host: NetlinkSocket;
  readonly hostNft: NetlinkSocket;
}

/** A host port that led to a pod. */
export interface Lost extends HostPort {
  readonly family: 4 | 6;
  readonly pod: Ip;
}

/**
 * Makes the kernel forget UDP flows that go on as they began, though the mapping has changed since: those to a host port
 * that now leads to a pod, and those to pods by claims that went. Flows that go where they should stay. Each family with
 * UDP ports costs one walk through the kernel's table.
 */
export function forgetStaleFlows(
  sockets: HostSockets,
  plans: readonly FamilyPlan[],
  gone: readonly Lost[],
): void {
  if (![...plans.flatMap(plan => plan.forwards), ...gone].some(isUdp) || !hasFlows()) return;
  const isLocal = localDestinations(sockets.host);
  for (const family of [4, 6] as const) {
    const plan = plans.find(one => one.family === family);
    const forwards = (plan?.forwards ?? []).filter(isUdp);
    const claims = gone.filter(claim => claim.family === family && isUdp(claim));
    const [port, ...more] = new Set([...forwards, ...claims].map(one => one.port));
    if (port === undefined) continue;
    const filter = {
      family,
      protocol: PROTOCOLS.udp,
      port: more.length ? undefined : port,
      // Claims of one attachment all speak of the same pod; only DEL has nothing but those of one.
      responder: plan === undefined && allSame(claims) ? claims[0]?.pod : undefined,
    };
    const isStale = (flow: Flow) =>
      claims.some(claim => claim.port === flow.destinationPort && sameIp(claim.pod, flow.responder)) ||
      forwards.some(forward => isMeant(forward, flow, isLocal));
    for (const flow of listFlows(sockets.hostNft, filter)) {
      if (isStale(flow) && !(plan && leadsTo(flow, plan))) removeFlow(sockets.hostNft, flow);
    }
  }
}

function isUdp({ protocol }: HostPort): boolean {
  return protocol === 'udp';
}

function allSame(claims: readonly Lost[]): boolean {
  const [first] = claims;
  return first !== undefined && claims.every(({ pod }) => sameIp(pod, first.pod));
}

/** True when the first packet of the flow would be forwarded today, wherever it went. */
function isMeant({ port, ip }: Forward, flow: Flow, isLocal: (flow: Flow) => boolean): boolean {
  return port === flow.destinationPort && (ip ? sameIp(ip, flow.destination) : isLocal(flow));
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

function leadsTo(flow: Flow, { pod, forwards }: FamilyPlan): boolean {
  return forwards.some(
    forward =>
      isUdp(forward) &&
      forward.containerPort === flow.responderPort &&
      sameIp(flow.responder, pod.ip) &&
      isMeant(forward, flow, () => true),
  );
}
