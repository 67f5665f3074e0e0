// How is a limit set on one device and verified, and which plugin owns an existing qdisc?
import { defined } from '../../src/cni/defined.ts';
import { NLM_F_CREATE, NLM_F_REPLACE } from '../../src/netlink/codec/message.ts';
import { htbClassRequest, listClasses } from '../../src/netlink/rtnl/class.ts';
import { listFilters, subnetFilterRequest } from '../../src/netlink/rtnl/filter.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import {
  bfifoRequest,
  findQdisc,
  htbRequest,
  type Qdisc,
  removeQdiscRequest,
  tbfRequest,
} from '../../src/netlink/rtnl/qdisc.ts';
import type { Tbf } from '../../src/netlink/rtnl/tc/tbf.ts';
import { renderTcHandle, tcHandle } from '../../src/netlink/rtnl/tc/tcmsg.ts';
import type { NetlinkSocket, Request } from '../../src/netlink/socket.ts';
import type { Bucket, Shaper } from './plan.ts';
import {
  type FoundTree,
  findTreeDifferences,
  isReferenceTree,
  SHAPED_MINOR,
  type Tree,
  UNLIMITED_BYTES,
  UNSHAPED_MINOR,
} from './tree.ts';

/** Our qdiscs have the same handles as the reference's: `1:` at the root, and the queue of the limited class. */
const ROOT = tcHandle(1, 0);
const SHAPED = tcHandle(1, SHAPED_MINOR);
const SHAPED_QUEUE = tcHandle(SHAPED_MINOR, 0);

/**
 * Requests that set the limit on a device, replacing one of ours or of the reference; empty if it is already set.
 * @param root the existing root qdisc
 * @throws Error when it is a foreign qdisc
 */
export function queueRequests(
  host: NetlinkSocket,
  device: Link,
  root: Qdisc | undefined,
  { bucket, tree, form }: Shaper,
): Request[] {
  const found = root && findTree(host, root);
  if (root && found === undefined && !isBucket(root)) {
    throw new Error(
      `Cannot limit "${device.name}": it has a foreign root qdisc "${root.kind}" ` +
        `(handle "${renderTcHandle(root.handle)}"); remove it first`,
    );
  }
  const removal = root ? [removeQdiscRequest(root)] : [];
  if (form === 'bucket') {
    // A bucket replaces another without a gap.
    return [...(found ? removal : []), tbfRequest(device.index, bucket.tbf)];
  }
  if (found && findTreeDifferences(tree, found).length === 0) return [];
  if (found && differsInRate(tree, found)) return rateRequests(device.index, tree);
  return [...removal, ...treeRequests(device.index, tree)];
}

/** The difference from {@link queueRequests}, human-readable; undefined if there is none. */
export function findQueueDifference(
  host: NetlinkSocket,
  root: Qdisc | undefined,
  { bucket, tree, form }: Shaper,
): string | undefined {
  const kind = form === 'tree' ? 'htb' : 'tbf';
  const found = root && findTree(host, root);
  if (found && isReferenceTree(tree, found)) return undefined;
  if (root?.kind !== kind)
    return `its root qdisc is ${root ? `"${root.kind}"` : 'the default'}, not "${kind}"`;
  if (form === 'bucket') return findBucketDifference(bucket, root);
  if (found === undefined) return 'the classes of its root qdisc "htb" are foreign';
  return findTreeDifferences(tree, found).join('; ') || undefined;
}

/** Requests that remove the limit from a device; other qdiscs are kept. */
export function queueRemovals(host: NetlinkSocket, root: Qdisc | undefined): Request[] {
  if (root === undefined || !(isBucket(root) || findTree(host, root))) return [];
  return [removeQdiscRequest(root)];
}

function isBucket({ kind, handle }: Qdisc): boolean {
  return kind === 'tbf' && handle === ROOT;
}

function treeRequests(index: number, tree: Tree): Request[] {
  return [
    htbRequest(index, tree.defaultMinor),
    htbClassRequest(index, UNSHAPED_MINOR, tree.unshaped),
    htbClassRequest(index, SHAPED_MINOR, tree.shaped),
    bfifoRequest(index, { parent: SHAPED, handle: SHAPED_QUEUE, limitBytes: tree.limitBytes }),
    ...tree.filters.map(filter => subnetFilterRequest(index, filter)),
  ];
}

/** Whether the limited class and its queue exist, and nothing else is to be changed. */
function differsInRate(tree: Tree, found: FoundTree): boolean {
  const { shaped, limitBytes } = found;
  return (
    Boolean(shaped && limitBytes) &&
    findTreeDifferences({ ...tree, ...defined({ shaped, limitBytes }) }, found).length === 0
  );
}

/** They change the class and its queue in place: what is queued stays. */
function rateRequests(index: number, { shaped, limitBytes }: Tree): Request[] {
  const flags = NLM_F_CREATE | NLM_F_REPLACE;
  return [
    { ...htbClassRequest(index, SHAPED_MINOR, shaped), flags },
    { ...bfifoRequest(index, { parent: SHAPED, handle: SHAPED_QUEUE, limitBytes }), flags },
  ];
}

/** The tree at a root: two classes as only we and the reference make them; undefined for other trees. */
function findTree(host: NetlinkSocket, root: Qdisc): FoundTree | undefined {
  const { index, kind, handle, defaultClass } = root;
  if (kind !== 'htb' || handle !== ROOT || defaultClass === undefined) return undefined;
  const classes = listClasses(host, index).filter(one => one.kind === 'htb');
  const classOf = (minor: number) => classes.find(one => one.handle === tcHandle(1, minor))?.htb;
  const [shaped, unshaped] = [classOf(SHAPED_MINOR), classOf(UNSHAPED_MINOR)];
  // Others also use these numbers, but not with that rate; damage may have left only one of the two.
  const isOurs =
    classes.length <= 2 && (unshaped ? unshaped.rateBytes === UNLIMITED_BYTES : shaped !== undefined);
  if (!isOurs) return undefined;
  const queue = findQdisc(host, index, SHAPED);
  return {
    defaultMinor: defaultClass,
    shaped,
    unshaped,
    limitBytes: queue?.kind === 'bfifo' ? queue.limitBytes : undefined,
    filters: listFilters(host, index, ROOT),
  };
}

function findBucketDifference({ tbf, accepted }: Bucket, root: Qdisc): string | undefined {
  const { tbf: found } = root;
  if (found && accepted.some(other => renderTbf(other) === renderTbf(found))) return undefined;
  return `expected ${renderTbf(tbf)}, found ${found ? renderTbf(found) : 'none'}`;
}

function renderTbf({ rateBytes, limitBytes, bufferTicks }: Tbf): string {
  return `rate ${rateBytes * 8} bit/s, limit ${limitBytes} bytes, buffer ${bufferTicks} ticks`;
}
