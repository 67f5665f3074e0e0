// What does the object of a block say?
import { createHash } from 'node:crypto';
import * as z from 'zod/mini';
import { defined } from '../cni/defined.ts';
import { type Cidr, findCidr, renderCidr, subnetOf } from '../net/cidr.ts';
import { findIp, IP_BITS, parseIp } from '../net/ip.ts';
import { type HeldBlock, HeldRange } from './held.ts';
import { isSameMachine } from './machine.ts';
import {
  KEPT_LABEL,
  type Kind,
  type NewObject,
  NODE_LABEL,
  POOL_LABEL,
  type StoredObject,
} from './objects.ts';

/** Values of labels are limited to this many characters. */
const LONGEST = 63;

/** The name itself if it may be a value; otherwise one that only this name has. */
export function labelOf(name: string): string {
  if (name.length <= LONGEST && /^[A-Za-z\d]([A-Za-z\d._-]*[A-Za-z\d])?$/.test(name)) return name;
  return `sha256-${createHash('sha256').update(name).digest('hex').slice(0, 40)}`;
}

const BlockOwner = z.object({ node: z.string(), machine: z.optional(z.string()), network: z.string() });

/** Those to whom a block belongs. */
export type BlockOwner = z.output<typeof BlockOwner>;

/** The `spec` of a Block or an Address: everything that a node needs that takes it up again. */
const BlockSpec = z.looseObject({
  pool: z.string(),
  node: z.string(),
  /** Of the node: another machine of that name is another node. */
  machine: z.optional(z.string()),
  network: z.string(),
  size: z.int(),
  cidrs: z.array(z.string()),
  ranges: z.array(HeldRange),
  /** Its node seems to have vanished. The node itself takes this back. */
  orphaned: z.optional(z.boolean()),
  /** For whom a single address is kept when its attachment has ended, and for how many seconds; a claim has no such limit. */
  keptFor: z.optional(z.string()),
  keepS: z.optional(z.number()),
  /** No attachment has the kept address: any node may take it over. */
  idle: z.optional(z.boolean()),
  /** A machine moves: this one has the kept address as well, and gets it when the attachment of the owner ends. */
  next: z.optional(BlockOwner),
  /** Changes whenever the address is given or taken: a write without a difference would not change the version. */
  turn: z.optional(z.int()),
});
type BlockSpec = z.output<typeof BlockSpec>;

/** The kind of an object with that many addresses. */
export function kindOf({ size }: { readonly size: number }): Kind {
  return size === 1 ? 'addresses' : 'blocks';
}

/** The object that claims a block. */
export function blockObject(
  { name, pool, size, ranges, keptFor, keepS, turn }: HeldBlock,
  { node, machine, network }: BlockOwner,
): NewObject {
  return {
    name,
    labels: {
      [POOL_LABEL]: labelOf(pool),
      [NODE_LABEL]: labelOf(node),
      ...(keptFor === undefined ? {} : { [KEPT_LABEL]: labelOf(keptFor) }),
    },
    spec: {
      ...{ pool, node, ...defined({ machine }), network, size, cidrs: cidrsOf({ size, ranges }), ranges },
      // One that is claimed again goes on counting: fewer turns would mean that the store was restored.
      ...defined({ keptFor, keepS, turn }),
    },
  };
}

/** The block of each family that has these addresses. */
function cidrsOf({ size, ranges }: Pick<HeldBlock, 'size' | 'ranges'>): string[] {
  const blocks = ranges.map(({ from }) => {
    const ip = parseIp(from);
    return renderCidr(subnetOf({ ip, prefix: IP_BITS[ip.family] - Math.log2(size) }));
  });
  return [...new Set(blocks)];
}

/** What an object says; undefined if it is not the object of a block. */
export function blockSpecOf({ spec }: Pick<StoredObject, 'spec'>): BlockSpec | undefined {
  const { success, data } = BlockSpec.safeParse(spec);
  return success ? data : undefined;
}

/** The subnets of a block of a routed pool: they are on its node. Blocks of a flat pool lie in one subnet, which is on all nodes. */
export function routedCidrsOf({ cidrs, ranges }: BlockSpec): Cidr[] {
  return cidrs
    .map(findCidr)
    .filter((cidr): cidr is Cidr => cidr !== undefined)
    .filter(({ ip: { family }, prefix }) =>
      ranges.some(range => range.prefix === prefix && findIp(range.from)?.family === family),
    );
}

/** Whether an object belongs to a network of a node. */
export function isOwn(object: StoredObject, owner: BlockOwner): boolean {
  return isOwner(blockSpecOf(object), owner);
}

/** Those alone, of a value that says more. */
export function ownerOf({ node, machine, network }: BlockOwner): BlockOwner {
  return { node, ...defined({ machine }), network };
}

/** Whether both are the same network of the same node. */
export function isOwner(one: BlockOwner | undefined, { node, machine, network }: BlockOwner): boolean {
  return one?.node === node && one.network === network && isSameMachine(one.machine, machine);
}

/** The same object of another owner, without its marks, and with the next turn: a request that comes late names a version that is gone. */
export function ownedBy(
  object: StoredObject,
  { node, machine, network }: BlockOwner,
  idle?: true,
): StoredObject {
  const { machine: _, ...spec } = nextTurn(object, idle).spec;
  const labels = { ...object.labels, [NODE_LABEL]: labelOf(node) };
  return { ...object, labels, spec: { ...spec, node, network, ...defined({ machine }) } };
}

/** The same object without its marks, and with the next turn. */
export function nextTurn(object: StoredObject, idle: true | undefined): StoredObject {
  const { idle: _, orphaned: __, next: ___, ...spec } = object.spec;
  const turn = typeof spec.turn === 'number' ? spec.turn + 1 : 1;
  return { ...object, spec: { ...spec, ...defined({ idle }), turn } };
}

/** A block as its node holds it. */
export function heldFrom(object: StoredObject): HeldBlock | undefined {
  const spec = blockSpecOf(object);
  if (spec === undefined) return undefined;
  const { pool, size, ranges, keptFor, keepS, idle, turn } = spec;
  return {
    ...{ pool, name: object.name, size, state: 'held', uid: object.uid, ranges },
    ...defined({ keptFor, keepS, turn, idle: idle ? 'told' : undefined }),
  };
}

/** Whether the store had a later state of a block's object before: since then it was restored. */
export function isEarlier(object: StoredObject, { uid, turn = 0 }: HeldBlock): boolean {
  return object.uid === uid && (blockSpecOf(object)?.turn ?? 0) < turn;
}
