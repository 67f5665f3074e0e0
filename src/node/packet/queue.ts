// Do the queues of a device let packets through in time, and do its filters lead them anywhere?

import { listFilters, listIngressFilters } from '../../netlink/rtnl/filter.ts';
import { IFF_UP, type Link } from '../../netlink/rtnl/link.ts';
import { listClasses, type Qdisc, ticksPerUs } from '../../netlink/rtnl/qdisc.ts';
import type { Packet } from '../doctor/filter/packet.ts';
import { hop, lost, type Walk } from './report.ts';
import type { Site } from './site.ts';

/** The first packet of a TCP connection, with its Ethernet header. */
const SMALLEST_BYTES = 74;
/** A packet of the usual MTU. */
const USUAL_BYTES = 1514;
/** Kinds that neither limit a rate nor lose packets by intention. */
const HARMLESS = ['noqueue', 'pfifo_fast', 'pfifo', 'bfifo', 'fq', 'fq_codel', 'codel', 'mq', 'sfq', 'cake'];

/** linux/pkt_sched.h: TC_H_CLSACT with TC_H_MIN_EGRESS */
const EGRESS_FILTERS = 0xff_ff_ff_f3;

/** Packets that leave through the device. @param repair command that makes the queues of a network again */
export function* leaveQueue(site: Site, packet: Packet, link: Link, repair: string | undefined): Walk {
  const own = site.tables.qdiscs.filter(({ index }) => index === link.index);
  if (own.some(({ kind }) => kind === 'clsact'))
    for (const { kind } of listFilters(site.route, link.index, EGRESS_FILTERS))
      yield lost(site, packet, 'queue', `a ${kind} filter of "${link.name}" may lead it elsewhere`);
  for (const qdisc of own.filter(({ kind }) => kind !== 'ingress' && kind !== 'clsact')) {
    const { kind, tbf } = qdisc;
    const remove = site.command(`tc qdisc del dev ${link.name} root`);
    if (tbf) {
      const bucketBytes = (tbf.rateBytes * (tbf.bufferTicks / ticksPerUs())) / 1_000_000;
      yield* judgeRate(site, packet, {
        name: `tbf of "${link.name}"`,
        rateBytes: tbf.rateBytes,
        bucketBytes,
        mend: repair ?? remove,
      });
    } else if (kind === 'htb') {
      // A repair leaves a qdisc of another kind alone.
      const mend = repair === undefined ? remove : `${remove} && ${repair}`;
      yield* judgeClasses(site, packet, link, qdisc, mend);
    } else if (!HARMLESS.includes(kind)) {
      yield hop(site, packet, 'queue', 'unknown', `qdisc ${kind} of "${link.name}" cannot be judged`);
    }
  }
}

/** Packets that arrive on the device may be redirected, through the queue of another device. */
export function* arriveQueue(site: Site, packet: Packet, link: Link, repair: string | undefined): Walk {
  for (const { kind, redirectAllTo } of listIngressFilters(site.route, link.index)) {
    if (redirectAllTo === undefined) {
      yield lost(site, packet, 'queue', `a ${kind} filter of "${link.name}" may lead it elsewhere`);
      continue;
    }
    const target = site.link(redirectAllTo);
    const mend = repair ?? site.command(`tc filter del dev ${link.name} ingress`);
    if (redirectAllTo === 0 || target === undefined) {
      const words = `packets from "${link.name}" are redirected to a device that no longer exists`;
      yield hop(site, packet, 'queue', 'stops', words, mend);
      return;
    }
    if ((target.flags & IFF_UP) === 0) {
      const words = `packets from "${link.name}" are redirected to "${target.name}", which is down`;
      yield hop(site, packet, 'queue', 'stops', words, site.command(`ip link set dev ${target.name} up`));
    }
    yield* leaveQueue(site, packet, target, repair);
  }
}

interface Rate {
  readonly name: string;
  readonly rateBytes: number;
  /** Larger packets are dropped; undefined if the queue has another bound. */
  readonly bucketBytes?: number;
  readonly mend: string;
}

function* judgeRate(site: Site, packet: Packet, { name, rateBytes, bucketBytes, mend }: Rate): Walk {
  const rate = `${name} passes ${rateBytes} bytes per second`;
  if (bucketBytes !== undefined && bucketBytes < SMALLEST_BYTES) {
    const words = `${name} drops packets of more than ${Math.floor(bucketBytes)} bytes`;
    yield hop(site, packet, 'queue', 'stops', words, mend);
  } else if (rateBytes < SMALLEST_BYTES) {
    yield hop(
      site,
      packet,
      'queue',
      'stops',
      `${rate}: the smallest packet takes longer than a second`,
      mend,
    );
  } else if (rateBytes < USUAL_BYTES || (bucketBytes ?? USUAL_BYTES) < USUAL_BYTES) {
    yield hop(
      site,
      packet,
      'queue',
      'unknown',
      `${rate}: large packets take longer than a second, or are lost`,
    );
  } else if (!packet.isReply) yield hop(site, packet, 'queue', 'passes', rate);
}

/** Which class a packet is in is not judged: that of packets without a filter stands for all unless one is slow. */
function* judgeClasses(site: Site, packet: Packet, link: Link, { defaultClass }: Qdisc, mend: string): Walk {
  const classes = listClasses(site.route, link.index).filter(({ htb }) => htb !== undefined);
  const slowest = classes.toSorted((a, b) => ceilOf(a) - ceilOf(b))[0];
  if (slowest === undefined) return;
  const isOnly = classes.length === 1 && (slowest.handle & 0xffff) === defaultClass;
  const name = `htb of "${link.name}"`;
  if (isOnly) yield* judgeRate(site, packet, { name, rateBytes: ceilOf(slowest), mend });
  else if (ceilOf(slowest) < USUAL_BYTES)
    yield hop(site, packet, 'queue', 'unknown', `${name} has a class of ${ceilOf(slowest)} bytes per second`);
}

function ceilOf({ htb }: { readonly htb?: { readonly ceilBytes: number } | undefined }): number {
  return htb?.ceilBytes ?? 0;
}
