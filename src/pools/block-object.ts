// What does the object of a block say?
import * as z from 'zod/mini';
import { type Cidr, findCidr, renderCidr } from '../net/cidr.ts';
import { findIp } from '../net/ip.ts';
import { type HeldBlock, HeldRange, newlyHeld } from './held.ts';
import { labelOf } from './label.ts';
import { type Kind, type NewObject, NODE_LABEL, POOL_LABEL, type StoredObject } from './objects.ts';
import type { BlockShape, Pool } from './pool.ts';

/** The `spec` of a Block or an Address: everything that a node needs that takes it up again. */
export const BlockSpec = z.looseObject({
  pool: z.string(),
  node: z.string(),
  network: z.string(),
  size: z.int(),
  cidrs: z.array(z.string()),
  ranges: z.array(HeldRange),
  /** Its node seems to have vanished. The node itself takes this back. */
  orphaned: z.optional(z.boolean()),
});
export type BlockSpec = z.output<typeof BlockSpec>;

/** Those to whom a block belongs. */
export interface BlockOwner {
  readonly node: string;
  readonly network: string;
}

/** The kind of an object with that many addresses. */
export function kindOf({ size }: { readonly size: number }): Kind {
  return size === 1 ? 'addresses' : 'blocks';
}

/** The object that claims a block. */
export function blockObject(pool: Pool, shape: BlockShape, { node, network }: BlockOwner): NewObject {
  const { ranges } = newlyHeld(pool.name, pool.blockSize, shape);
  return {
    name: shape.name,
    labels: { [POOL_LABEL]: labelOf(pool.name), [NODE_LABEL]: labelOf(node) },
    spec: {
      pool: pool.name,
      node,
      network,
      size: pool.blockSize,
      cidrs: shape.cidrs.map(renderCidr),
      ranges,
    },
  };
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
export function isOwn(object: StoredObject, { node, network }: BlockOwner): boolean {
  const spec = blockSpecOf(object);
  return spec?.node === node && spec.network === network;
}

/** A block as its node holds it. */
export function heldFrom(object: StoredObject): HeldBlock | undefined {
  const spec = blockSpecOf(object);
  if (spec === undefined) return undefined;
  const { pool, size, ranges } = spec;
  return { pool, name: object.name, size, state: 'held', uid: object.uid, ranges };
}
