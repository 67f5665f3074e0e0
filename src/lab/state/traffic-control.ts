// Which qdiscs and filters are attached to the devices of a namespace?
import { type Filter, listIngressFilters } from '../../netlink/rtnl/filter.ts';
import { listQdiscs, type Qdisc } from '../../netlink/rtnl/qdisc.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import { renderRate } from '../words.ts';
import { deviceKey } from './devices.ts';
import type { StateObject } from './object.ts';

/** Configured qdiscs, and the filters of those for incoming packets. */
export function readTrafficControl(socket: NetlinkSocket, nameOf: (index: number) => string): StateObject[] {
  // The kernel's default qdiscs have no handle.
  const qdiscs = listQdiscs(socket).filter(qdisc => qdisc.handle !== 0);
  return qdiscs.flatMap(qdisc => {
    const device = nameOf(qdisc.index);
    const filters = isIngress(qdisc) ? listIngressFilters(socket, qdisc.index) : [];
    return [
      {
        key: `qdisc ${device} ${qdisc.parent}`,
        words: `${describeQdisc(qdisc)} on ${device}`,
        parent: deviceKey(device),
        shape: `qdisc of kind ${qdisc.kind}`,
      },
      ...filters.map((filter, i) => ({
        key: `filter ${device} ${filter.preference} ${i}`,
        words: `${describeFilter(filter, nameOf)} on ${device}`,
        parent: deviceKey(device),
        shape: `filter of kind ${filter.kind}`,
      })),
    ];
  });
}

function isIngress({ kind }: Qdisc): boolean {
  return kind === 'ingress' || kind === 'clsact';
}

function describeQdisc({ kind, tbf }: Qdisc): string {
  return tbf === undefined ? kind : `${kind} ${renderRate(tbf.rateBytes * 8)}`;
}

function describeFilter({ kind, redirectAllTo }: Filter, nameOf: (index: number) => string): string {
  if (redirectAllTo === undefined) return `filter ${kind}`;
  return `redirect to ${nameOf(redirectAllTo)}`;
}
