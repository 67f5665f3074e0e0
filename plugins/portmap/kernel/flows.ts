// Which tracked flows contradict the current mappings, and how are they removed?
import { FAMILIES, type Ip, renderIp, sameIp } from '../../../src/net/ip.ts';
import {
  countFlows,
  type Flow,
  type FlowFilter,
  listFlows,
  removeFlow,
} from '../../../src/netlink/conntrack.ts';
import { findWay } from '../../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import {
  type FamilyPlan,
  type Forward,
  type HostPort,
  PROTOCOLS,
  type Protocol,
  protocolName,
} from '../plan.ts';

interface HostSockets {
  readonly host: NetlinkSocket;
  readonly hostNft: NetlinkSocket;
}

/**
 * UDP has no end of a connection that would end a flow. SCTP has one, but the host does not see it if the pod is gone before, and clients keep
 * their port: the kernel would send a new association where the old one went, for as long as the client tries.
 */
const LASTING: readonly Protocol[] = ['udp', 'sctp'];

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
 * Makes the kernel forget flows that continue as they began although the mapping has changed: those to a host port that is
 * now forwarded to a pod, and those to pods through ports that were lost. Flows that already reach the right pod are kept. Costs
 * one walk through the kernel's table for each family and protocol with such ports, one for both families if there are few flows,
 * none if there are no flows.
 * @param protocols by default those whose flows outlast the pod
 */
export function forgetStaleFlows(
  sockets: HostSockets,
  plans: readonly FamilyPlan[],
  lost: readonly Lost[],
  protocols: readonly Protocol[] = LASTING,
): void {
  const matters = FAMILIES.flatMap(family =>
    protocols.flatMap(protocol => matterOf(family, protocol, plans, lost)),
  );
  const count = matters.length ? (countFlows() ?? Infinity) : 0;
  if (count === 0) return;
  const isLocal = localDestinations(sockets.host);
  const filters =
    matters.length > 1 && count <= FEW_FLOWS
      ? [...new Set(matters.map(one => one.protocol))].map(protocol => ({ protocol: PROTOCOLS[protocol] }))
      : matters.map(filterFor);
  for (const flow of filters.flatMap(filter => listFlows(sockets.hostNft, filter))) {
    const protocol = protocolName(flow.attrs.original?.proto?.protocol);
    const matter = matters.find(one => one.family === flow.family && one.protocol === protocol);
    if (matter && isStale(flow, matter, isLocal)) removeFlow(sockets.hostNft, flow);
  }
}

interface Matter {
  readonly family: 4 | 6;
  readonly protocol: Protocol;
  readonly plan: FamilyPlan | undefined;
  readonly forwards: readonly Forward[];
  readonly lost: readonly Lost[];
  /** The same indexed by port: flows and ports may both number in the thousands. */
  readonly byPort: ReadonlyMap<
    number,
    { readonly forwards: readonly Forward[]; readonly lost: readonly Lost[] }
  >;
}

function matterOf(
  family: 4 | 6,
  protocol: Protocol,
  plans: readonly FamilyPlan[],
  all: readonly Lost[],
): Matter[] {
  const isSame = (one: HostPort) => one.protocol === protocol;
  const plan = plans.find(one => one.family === family);
  const forwards = (plan?.forwards ?? []).filter(isSame);
  const lost = all.filter(one => one.family === family && isSame(one));
  if (lost.length + (protocol === 'udp' ? forwards.length : 0) === 0) return [];
  const byPort = new Map<number, { forwards: Forward[]; lost: Lost[] }>();
  const at = (port: number) => {
    const known = byPort.get(port) ?? { forwards: [], lost: [] };
    byPort.set(port, known);
    return known;
  };
  for (const forward of forwards) at(forward.port).forwards.push(forward);
  for (const one of lost) at(one.port).lost.push(one);
  return [{ family, protocol, plan, forwards, lost, byPort }];
}

/** The part of the condition that the kernel can evaluate. */
function filterFor({ family, protocol, plan, forwards, lost }: Matter): FlowFilter {
  const [port, ...more] = new Set([...forwards, ...lost].map(one => one.port));
  const [pod, ...pods] = new Set(lost.map(one => renderIp(one.pod)));
  return {
    family,
    protocol: PROTOCOLS[protocol],
    port: more.length ? undefined : port,
    // All ports of one attachment are forwarded to the same pod, and only DEL handles no other ports than those of one
    // attachment.
    responder: plan === undefined && pod && pods.length === 0 ? lost[0]?.pod : undefined,
  };
}

function isStale(flow: Flow, { protocol, plan, byPort }: Matter, isLocal: (flow: Flow) => boolean): boolean {
  const { forwards = [], lost = [] } = byPort.get(flow.destinationPort) ?? {};
  const isMeantOrLost =
    lost.some(({ pod }) => sameIp(pod, flow.responder)) ||
    // A connection to the host's own server on a port that is forwarded from now on continues.
    (protocol === 'udp' && forwards.some(forward => isMeant(forward, flow, isLocal)));
  return isMeantOrLost && !(plan && leadsTo(flow, plan.pod, forwards));
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
