// Which remembered UDP flows contradict the mappings of today, and how do they go?
import { type Ip, renderIp, sameIp } from '../../../src/net/ip.ts';
import {
  countFlows,
  type Flow,
  type FlowFilter,
  listFlows,
  removeFlow,
} from '../../../src/netlink/conntrack.ts';
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

/** So many flows are sooner looked at here than the kernel's table is walked once more: its size is fixed, and large. */
const FEW_FLOWS = 200;

/**
 * Makes the kernel forget UDP flows that go on as they began, though the mapping has changed since: those to a host port
 * that now leads to a pod, and those to pods by ports that were lost. Flows that go where they should stay. Costs one walk
 * through the kernel's table for each family with UDP ports, one for both where there are few flows, none without any.
 */
export function forgetStaleFlows(
  sockets: HostSockets,
  plans: readonly FamilyPlan[],
  lost: readonly Lost[],
): void {
  const matters = ([4, 6] as const).flatMap(family => matterOf(family, plans, lost));
  const count = matters.length ? (countFlows() ?? Infinity) : 0;
  if (count === 0) return;
  const isLocal = localDestinations(sockets.host);
  const filters =
    matters.length > 1 && count <= FEW_FLOWS ? [{ protocol: PROTOCOLS.udp }] : matters.map(filterFor);
  for (const flow of filters.flatMap(filter => listFlows(sockets.hostNft, filter))) {
    const matter = matters.find(({ family }) => family === flow.family);
    if (matter && isStale(flow, matter, isLocal)) removeFlow(sockets.hostNft, flow);
  }
}

/** What is to be looked for in one family. */
interface Matter {
  readonly family: 4 | 6;
  readonly plan: FamilyPlan | undefined;
  readonly forwards: readonly Forward[];
  readonly lost: readonly Lost[];
}

function matterOf(family: 4 | 6, plans: readonly FamilyPlan[], all: readonly Lost[]): Matter[] {
  const plan = plans.find(one => one.family === family);
  const forwards = (plan?.forwards ?? []).filter(isUdp);
  const lost = all.filter(one => one.family === family && isUdp(one));
  return forwards.length + lost.length ? [{ family, plan, forwards, lost }] : [];
}

/** What the kernel can compare. */
function filterFor({ family, plan, forwards, lost }: Matter): FlowFilter {
  const [port, ...more] = new Set([...forwards, ...lost].map(one => one.port));
  return {
    family,
    protocol: PROTOCOLS.udp,
    port: more.length ? undefined : port,
    // Ports of one attachment all lead to the same pod; only DEL has nothing but those of one.
    responder: plan === undefined && allSame(lost) ? lost[0]?.pod : undefined,
  };
}

function isStale(flow: Flow, { plan, forwards, lost }: Matter, isLocal: (flow: Flow) => boolean): boolean {
  const isMeantOrLost =
    lost.some(({ port, pod }) => port === flow.destinationPort && sameIp(pod, flow.responder)) ||
    forwards.some(forward => isMeant(forward, flow, isLocal));
  return isMeantOrLost && !(plan && leadsTo(flow, plan));
}

function isUdp({ protocol }: HostPort): boolean {
  return protocol === 'udp';
}

function allSame(lost: readonly Lost[]): boolean {
  const [first] = lost;
  return first !== undefined && lost.every(({ pod }) => sameIp(pod, first.pod));
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
