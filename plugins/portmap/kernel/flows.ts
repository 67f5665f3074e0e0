// Which tracked UDP flows contradict the current mappings, and how are they removed?
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

/** A host port that was forwarded to a pod. */
export interface Lost extends HostPort {
  readonly family: 4 | 6;
  readonly pod: Ip;
}

/**
 * Up to this many flows, filtering them here is faster than another walk through the kernel's table, which has a large fixed
 * size.
 */
const FEW_FLOWS = 200;

/**
 * Makes the kernel forget UDP flows that continue as they began although the mapping has changed: those to a host port that is
 * now forwarded to a pod, and those to pods through ports that were lost. Flows that already reach the right pod are kept. Costs
 * one walk through the kernel's table for each family with UDP ports, one for both if there are few flows, none if there are no
 * flows.
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

/** What to look for in one family. */
interface Matter {
  readonly family: 4 | 6;
  readonly plan: FamilyPlan | undefined;
  readonly forwards: readonly Forward[];
  readonly lost: readonly Lost[];
  /** The same indexed by port: flows and ports may both number in the thousands. */
  readonly byPort: ReadonlyMap<
    number,
    { readonly forwards: readonly Forward[]; readonly lost: readonly Lost[] }
  >;
}

function matterOf(family: 4 | 6, plans: readonly FamilyPlan[], all: readonly Lost[]): Matter[] {
  const plan = plans.find(one => one.family === family);
  const forwards = (plan?.forwards ?? []).filter(isUdp);
  const lost = all.filter(one => one.family === family && isUdp(one));
  if (forwards.length + lost.length === 0) return [];
  const byPort = new Map<number, { forwards: Forward[]; lost: Lost[] }>();
  const at = (port: number) => {
    const known = byPort.get(port) ?? { forwards: [], lost: [] };
    byPort.set(port, known);
    return known;
  };
  for (const forward of forwards) at(forward.port).forwards.push(forward);
  for (const one of lost) at(one.port).lost.push(one);
  return [{ family, plan, forwards, lost, byPort }];
}

/** The part of the condition that the kernel can evaluate. */
function filterFor({ family, plan, forwards, lost }: Matter): FlowFilter {
  const [port, ...more] = new Set([...forwards, ...lost].map(one => one.port));
  return {
    family,
    protocol: PROTOCOLS.udp,
    port: more.length ? undefined : port,
    // All ports of one attachment are forwarded to the same pod, and only DEL handles no other ports than those of one
    // attachment.
    responder: plan === undefined && allSame(lost) ? lost[0]?.pod : undefined,
  };
}

function isStale(flow: Flow, { plan, byPort }: Matter, isLocal: (flow: Flow) => boolean): boolean {
  const { forwards = [], lost = [] } = byPort.get(flow.destinationPort) ?? {};
  const isMeantOrLost =
    lost.some(({ pod }) => sameIp(pod, flow.responder)) ||
    forwards.some(forward => isMeant(forward, flow, isLocal));
  return isMeantOrLost && !(plan && leadsTo(flow, plan.pod, forwards));
}

function isUdp({ protocol }: HostPort): boolean {
  return protocol === 'udp';
}

function allSame(lost: readonly Lost[]): boolean {
  const [first] = lost;
  return first !== undefined && lost.every(({ pod }) => sameIp(pod, first.pod));
}

/** True when the first packet of the flow would be forwarded now, wherever it was sent then. */
function isMeant({ port, ip }: Forward, flow: Flow, isLocal: (flow: Flow) => boolean): boolean {
  return port === flow.destinationPort && (ip ? sameIp(ip, flow.destination) : isLocal(flow));
}

/** Flows that pass through this host to the same port of another host are not our concern. */
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

function leadsTo(flow: Flow, pod: FamilyPlan['pod'], forwards: readonly Forward[]): boolean {
  return forwards.some(
    forward =>
      forward.containerPort === flow.responderPort &&
      sameIp(flow.responder, pod.ip) &&
      isMeant(forward, flow, () => true),
  );
}
