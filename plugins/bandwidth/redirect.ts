// How do packets from a container reach the device that can delay them?
import {
  type Filter,
  listIngressFilters,
  redirectRequest,
  removeIngressFiltersRequest,
} from '../../src/netlink/rtnl/filter.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { ingressRequest, type Qdisc, removeQdiscRequest } from '../../src/netlink/rtnl/qdisc.ts';
import type { NetlinkSocket, Request } from '../../src/netlink/socket.ts';

/** Requests that redirect a device's incoming packets to another one; empty if they are already redirected. */
export function redirectRequests(
  host: NetlinkSocket,
  veth: Link,
  hook: Qdisc | undefined,
  target: Link,
): Request[] {
  // `clsact`, which others use on a veth, can hold our filter as well as `ingress` can.
  const filters = hook ? listIngressFilters(host, veth.index) : [];
  if (isRedirected(filters, target)) return [];
  // A redirect to a missing device drops everything.
  const dead = filters.filter(({ redirectAllTo }) => redirectAllTo === 0);
  const preference = findFreePreference(filters.filter(filter => !dead.includes(filter)));
  return [
    ...(hook ? [] : [ingressRequest(veth.index)]),
    ...removalsOf(veth, dead),
    redirectRequest(veth.index, { preference, target: target.index }),
  ];
}

/** The difference from {@link redirectRequests}, human-readable; undefined if there is none. */
export function findRedirectDifference(
  host: NetlinkSocket,
  veth: Link,
  hook: Qdisc | undefined,
  target: Link,
): string | undefined {
  if (hook === undefined) return 'it has no ingress qdisc';
  if (isRedirected(listIngressFilters(host, veth.index), target)) return undefined;
  return `no filter redirects its ingress traffic to "${target.name}"`;
}

/**
 * Requests that remove redirects to the given devices and to missing ones. Other filters are kept, and so is a qdisc that holds
 * any.
 */
export function redirectRemovals(
  host: NetlinkSocket,
  veth: Link,
  hook: Qdisc | undefined,
  targets: readonly Link[],
): Request[] {
  if (hook === undefined) return [];
  const filters = listIngressFilters(host, veth.index);
  const indexes = [0, ...targets.map(({ index }) => index)];
  const ours = filters.filter(({ redirectAllTo }) => indexes.some(index => index === redirectAllTo));
  // Without a filter or a device of ours, the qdisc is not ours either.
  if (ours.length === 0 && targets.length === 0) return [];
  if (hook.kind === 'ingress' && ours.length === filters.length) return [removeQdiscRequest(hook)];
  return removalsOf(veth, ours);
}

function isRedirected(filters: readonly Filter[], target: Link): boolean {
  return filters.some(({ redirectAllTo }) => redirectAllTo === target.index);
}

/** The first preference that is free: filters of one preference share a kind and a protocol. */
function findFreePreference(others: readonly Filter[]): number {
  let preference = 1;
  while (others.some(filter => filter.preference === preference)) preference++;
  return preference;
}

function removalsOf(veth: Link, filters: readonly Filter[]): Request[] {
  const preferences = new Set(filters.map(({ preference }) => preference));
  return [...preferences].map(preference => removeIngressFiltersRequest(veth.index, preference));
}
