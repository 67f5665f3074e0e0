// How does the container get the device?

import { refuseTakenName } from '../../src/attach/container.ts';
import type { Layer3 } from '../../src/attach/device.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { ResultRoute } from '../../src/cni/result.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { renderCidr, renderIp } from '../../src/net/ip.ts';
import { type Address, RT_SCOPE_UNIVERSE } from '../../src/netlink/rtnl/addr.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { type Route, RT_TABLE_MAIN, routeThrough } from '../../src/netlink/rtnl/route.ts';
import type { Rule } from '../../src/netlink/rtnl/rule.ts';
import type { Call } from '../../src/plugin/define.ts';
import { findNetnsCookie } from '../../src/sys/netns-identity.ts';
import { addressesOf, capture, moveIn, routesOf } from './capture.ts';
import { type HostDeviceConf, type Selector, selectorOf } from './config.ts';
import { finishEarlier, finishReturned, giveBack, tryGiveBack } from './give-back.ts';
import {
  type DeviceRecord,
  findRecord,
  identify,
  listRecords,
  type RecordedRule,
  withDeviceLock,
  writeRecord,
} from './record.ts';
import { findPciAddress, type Selected, select } from './select.ts';

/** linux/if.h */
const IFF_LOOPBACK = 0x8;

type Present = Exclude<Selected, { kind: 'absent' }>;

/** A PCI device that has no interface. */
type Userspace = Extract<Selected, { kind: 'userspace' }>;

/** A device that was moved, and what it was like before. */
export interface Taken {
  readonly kind: 'interface';
  /** In the container. */
  readonly link: Link;
  /** Index of the host's device below it, or at its other end; 0 if there is none. */
  readonly lower: number;
  readonly record: DeviceRecord;
}

/**
 * Moves the device that the configuration names into the container, where it is down and without addresses. Registers its own
 * undo steps.
 * @returns the device, or the PCI device that has no interface because a program in user space drives it
 * @throws CniError 4 when the container has an interface of that name, 7 when the host has no such device, 11 when another
 * container has it
 */
export function take(call: Call<HostDeviceConf>): Taken | Userspace {
  const selector = selectorOf(call.conf);
  const found = find(call, selector);
  if (found.kind === 'userspace') return found;
  refuseTakenName(call);
  endEarlier(call);
  const identity = identify(found.link);
  return withDeviceLock(call.environment, identity, () => {
    // Another process may have moved or renamed it since.
    const again = select(call.host, selector);
    if (again.kind !== 'interface' || again.link.index !== found.link.index) throw moved(found.link);
    finishEarlier(call, again.link, identity.node);
    const link = findLink(call.host, again.link.index);
    if (link === undefined) throw moved(found.link);
    if (link.flags & IFF_LOOPBACK) throw unusable(`"${link.name}" is the loopback device of the host`);
    return { kind: 'interface', ...moveWithRecord(call, link, identity) };
  });
}

function moveWithRecord(
  call: Call<HostDeviceConf>,
  link: Link,
  identity: ReturnType<typeof identify>,
): Omit<Taken, 'kind'> {
  const { host, container, containerNetns: netns, env, environment } = call;
  const record: DeviceRecord = {
    id: crypto.randomUUID(),
    boot: bootId(environment),
    ...attachmentOf(call),
    netns: { path: env.netns, cookie: findNetnsCookie(env.netns) },
    ...capture(host, link, identity),
    rules: [],
  };
  call.onFailure(`return device "${link.name}"`, () => giveBack(call, record, { socket: container, netns }));
  writeRecord(environment, record);
  const lower = link.attrs.linkNetnsId === undefined ? link.peer : 0;
  return { link: moveIn(host, container, link, { netns, ifname: env.ifname }), lower, record };
}

/** Looks the device up; one that came home under another name because its namespace ended gets its own name first. */
function find(call: Call<HostDeviceConf>, selector: Selector): Present {
  const found = select(call.host, selector);
  if (found.kind !== 'absent') return found;
  const records = listRecords(call.environment).filter(record => isMeant(record, selector));
  for (const record of records) finishReturned(call, record);
  const again = select(call.host, selector);
  if (again.kind !== 'absent') return again;
  const holder = records.find(record => findRecord(call.environment, record)?.id === record.id);
  if (holder === undefined) throw unusable(again.why);
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot attach device "${holder.name}": container "${holder.containerId}" has it as interface "${holder.ifname}" on network "${holder.network}"`,
    { details: 'delete that container first' },
  );
}

/** Whether a selector means the device of a record. */
export function isMeant(record: DeviceRecord, selector: Selector): boolean {
  if (selector.by === 'name') return record.name === selector.name;
  if (selector.by === 'mac') return record.mac === selector.mac;
  return record.parent !== undefined && record.parent.name === findPciAddress(selector);
}

/** An earlier ADD of this attachment was never deleted: its device comes home first. */
function endEarlier(call: Call<HostDeviceConf>): void {
  const earlier = findRecord(call.environment, attachmentOf(call));
  if (earlier === undefined || tryGiveBack(call, earlier)) return;
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot attach container "${earlier.containerId}": device "${earlier.name}" of its earlier interface "${earlier.ifname}" has not come back yet`,
  );
}

function unusable(why: string): CniError {
  return new CniError(ErrorCode.invalidConfig, `Cannot attach device: ${why}`);
}

function moved({ name }: Link): CniError {
  return new CniError(
    ErrorCode.tryAgainLater,
    `Cannot attach device "${name}": another process has just moved or renamed it`,
  );
}

/** linux/rtnetlink.h */
const RT_TABLE_DEFAULT = 253;
const RT_TABLE_LOCAL = 255;

/** The addresses and routes that a device had on the host, for the index that it has in the container. */
export interface OwnNetwork {
  readonly addresses: readonly Address[];
  readonly routes: readonly Route[];
}

/** Reads it from the record; a container has no other device that a route of several next hops could use. */
export function ownNetwork(record: DeviceRecord, index: number): OwnNetwork {
  return {
    addresses: addressesOf(record, index),
    routes: routesOf(record, index).flatMap(route => routeThrough(route, index) ?? []),
  };
}

/** The same as a result: without gateways, because its routes name them. */
export function networkOf({ addresses, routes }: OwnNetwork): Layer3 {
  return {
    ips: addresses
      .filter(({ scope }) => scope === RT_SCOPE_UNIVERSE)
      .map(({ cidr }) => ({ address: renderCidr(cidr) })),
    routes: routes.map(renderRoute),
  };
}

/** The device's own network, then that of IPAM; what both have counts once. */
export function mergeNetworks(own: Layer3 | undefined, ipam: Layer3 | undefined): Layer3 {
  const [first, second] = [own ?? {}, ipam ?? {}];
  const known = new Set((second.ips ?? []).map(({ address }) => address));
  return {
    ips: [...(first.ips ?? []).filter(({ address }) => !known.has(address)), ...(second.ips ?? [])],
    routes: [...(first.routes ?? []), ...(second.routes ?? [])],
  };
}

/** The source rules of the host that lead to tables with routes through the device, apart from the kernel's own tables. */
export function rulesFor(routes: readonly Pick<Route, 'table'>[], rules: readonly Rule[]): RecordedRule[] {
  const own = new Set(routes.map(({ table = RT_TABLE_MAIN }) => table));
  for (const table of [RT_TABLE_MAIN, RT_TABLE_DEFAULT, RT_TABLE_LOCAL]) own.delete(table);
  return rules.flatMap(({ from, to, iif, oif, mark, table, priority }) => {
    const isPlain = to === undefined && iif === undefined && oif === undefined && !mark;
    return from && isPlain && own.has(table) ? [{ from: renderCidr(from), table, priority }] : [];
  });
}

function renderRoute({ dst, gateway, ways, table, scope, priority, mtu, advmss }: Route): ResultRoute {
  const gw = gateway ?? ways?.[0]?.gateway;
  return {
    dst: renderCidr(dst),
    ...(gw === undefined ? {} : { gw: renderIp(gw) }),
    ...(table && table !== RT_TABLE_MAIN ? { table } : {}),
    ...(scope ? { scope } : {}),
    ...(priority ? { priority } : {}),
    ...(mtu ? { mtu } : {}),
    ...(advmss ? { advmss } : {}),
  };
}
