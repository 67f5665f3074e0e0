// How do the planned buckets get onto the host's devices, and what became of them?
import type { Attachment } from '../../src/cni/attachment.ts';
import {
  addIngressRedirect,
  listIngressFilters,
  removeIngressFilters,
} from '../../src/netlink/rtnl/filter.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import { addIngress, findQdisc, removeQdisc, replaceTbf } from '../../src/netlink/rtnl/qdisc.ts';
import type { Tbf } from '../../src/netlink/rtnl/tc/tbf.ts';
import { renderTcHandle, tcHandle } from '../../src/netlink/rtnl/tc/tcmsg.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { ensureIfb, findIfbs } from './ifb.ts';
import type { Bucket } from './plan.ts';

/** Our redirect looks first. */
const REDIRECT_PREFERENCE = 1;

/** Limits what the host sends to the container. Same as: `tc qdisc replace dev <veth> root handle 1: tbf …` */
export function applyIngress(host: NetlinkSocket, veth: Link, bucket: Bucket): void {
  const root = findQdisc(host, veth.index, 'root');
  if (root && root.kind !== 'tbf') {
    throw new Error(
      `Cannot limit "${veth.name}": somebody put a root qdisc "${root.kind}" ` +
        `(handle "${renderTcHandle(root.handle)}") on it; remove it first`,
    );
  }
  replaceTbf(host, veth.index, bucket.tbf);
}

/**
 * Limits what comes from the container: a device can only shape what it sends, so packets take a detour through an
 * IFB device, which has the bucket before the first packet comes. @returns the IFB device
 */
export function applyEgress(host: NetlinkSocket, veth: Link, attachment: Attachment, bucket: Bucket): Link {
  const ifb = ensureIfb(host, attachment, veth.mtu);
  replaceTbf(host, ifb.index, bucket.tbf);
  // `clsact`, which others use on a veth, takes our filter as well as `ingress` does.
  if (findQdisc(host, veth.index, 'ingress') === undefined) addIngress(host, veth.index);
  const filters = listIngressFilters(host, veth.index);
  if (filters.some(filter => filter.redirectAllTo === ifb.index)) return ifb;
  // A redirect to a device that is gone drops everything.
  if (filters.some(filter => filter.redirectAllTo === 0)) {
    removeIngressFilters(host, veth.index, REDIRECT_PREFERENCE);
  }
  addIngressRedirect(host, veth.index, { preference: REDIRECT_PREFERENCE, target: ifb.index });
  return ifb;
}

/** Compares the kernel with {@link applyIngress}. @throws Error saying what differs */
export function verifyIngress(host: NetlinkSocket, veth: Link, bucket: Bucket): void {
  verifyBucket(host, veth, bucket, 'ingress');
}

/** Compares the kernel with {@link applyEgress}. @throws Error saying what differs */
export function verifyEgress(host: NetlinkSocket, veth: Link, attachment: Attachment, bucket: Bucket): void {
  const [ifb] = findIfbs(host, attachment);
  if (ifb === undefined) throw differs('egress', veth, 'its IFB device is gone');
  if (!(ifb.flags & IFF_UP)) throw differs('egress', ifb, 'the device is down');
  verifyBucket(host, ifb, bucket, 'egress');
  if (findQdisc(host, veth.index, 'ingress') === undefined) {
    throw differs('egress', veth, 'it has no ingress qdisc');
  }
  const filters = listIngressFilters(host, veth.index);
  if (filters.some(filter => filter.redirectAllTo === ifb.index)) return;
  throw differs('egress', veth, `no filter redirects what comes in to "${ifb.name}"`);
}

/** Takes the limit of {@link applyIngress} away; other qdiscs stay. */
export function removeIngress(host: NetlinkSocket, veth: Link): void {
  const root = findQdisc(host, veth.index, 'root');
  if (root?.kind === 'tbf' && root.handle === tcHandle(1, 0)) removeQdisc(host, root);
}

/**
 * Takes the redirect of {@link applyEgress} away, whose target may be gone already; other filters stay.
 * @param ifbs devices of ours that it may lead to
 */
export function removeEgress(host: NetlinkSocket, veths: readonly Link[], ifbs: readonly Link[]): void {
  const targets = [0, ...ifbs.map(ifb => ifb.index)];
  for (const veth of veths) {
    const filters = listIngressFilters(host, veth.index);
    const others = filters.filter(
      ({ redirectAllTo }) => redirectAllTo === undefined || !targets.includes(redirectAllTo),
    );
    // Without a filter or a device of ours, the qdisc is not ours either.
    if (others.length === filters.length && ifbs.length === 0) continue;
    const hook = findQdisc(host, veth.index, 'ingress');
    if (hook?.kind === 'ingress' && others.length === 0) removeQdisc(host, hook);
    else if (others.length < filters.length) {
      removeIngressFilters(host, veth.index, REDIRECT_PREFERENCE);
    }
  }
}

function verifyBucket(host: NetlinkSocket, device: Link, { tbf, accepted }: Bucket, direction: string): void {
  const root = findQdisc(host, device.index, 'root');
  const found = root?.tbf;
  if (found === undefined) {
    throw differs(
      direction,
      device,
      `its root qdisc is ${root ? `"${root.kind}"` : 'the default'}, not "tbf"`,
    );
  }
  if (accepted.some(other => renderTbf(other) === renderTbf(found))) return;
  throw differs(direction, device, `expected ${renderTbf(tbf)}, found ${renderTbf(found)}`);
}

function renderTbf({ rateBytes, limitBytes, bufferTicks }: Tbf): string {
  return `rate ${rateBytes * 8} bit/s, limit ${limitBytes} bytes, buffer ${bufferTicks} ticks`;
}

function differs(direction: string, device: Link, state: string): Error {
  return new Error(`Cannot confirm the ${direction} limit on "${device.name}": ${state}`);
}
