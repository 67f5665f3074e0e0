// Is any address held twice, and is any lost?

import { parseIp } from '../../src/net/ip.ts';
import { type BlockOwner, isOwn, isOwner } from '../../src/pools/held.ts';
import { blockContains } from '../../src/pools/lease.ts';
import type { Claimant } from '../../src/pools/place.ts';
import type { ApiModel } from './api-model.ts';
import type { SimulatedNode } from './node.ts';

/** What is asked of a node: the cluster's harness asks the same of real ones. */
export interface CheckedNode extends Pick<SimulatedNode, 'name' | 'leases' | 'blocks'> {
  readonly claimant: Pick<Claimant, 'network'>;
}

/** Why the nodes and the server contradict each other; empty if they do not. */
export function findContradictions(
  model: Pick<ApiModel, 'objects'>,
  nodes: readonly CheckedNode[],
): string[] {
  const problems = findWronglyLeased(nodes);
  const blocks = new Map<string, string>();
  const guests = new Map<string, string>();
  // Each is a file that is read.
  const held = new Map(nodes.map(node => [node, node.blocks()]));
  for (const [path, object] of model.objects) {
    if (!/\/(blocks|addresses)\//.test(path)) continue;
    const { name, uid } = object.metadata;
    const spec = object.spec as Record<string, unknown>;
    const stored = { name, uid, version: '', labels: {}, annotations: {}, spec };
    const owner = nodes.find(node => isOwn(stored, ownerOf(node)));
    const isHeld = owner && held.get(owner)?.some(block => block.name === name && block.state === 'held');
    if (owner === undefined) problems.push(`"${name}" belongs to no node`);
    else if (!isHeld) problems.push(`"${name}" is lost: ${owner.name} does not know that it holds it`);
    blocks.set(name, owner?.name ?? '');
    const { next } = spec as { next?: BlockOwner };
    if (next) guests.set(name, nodes.find(node => isOwner(next, ownerOf(node)))?.name ?? 'no node');
  }
  for (const [node, own] of held) {
    for (const block of own) {
      if (block.state !== 'held') problems.push(`${node.name} has "${block.name}" in state "${block.state}"`);
      else if ((block.guest ? guests : blocks).get(block.name) !== node.name)
        problems.push(`${node.name} holds "${block.name}", which is not its own`);
    }
  }
  return problems;
}

function ownerOf({ name, claimant: { network } }: CheckedNode): BlockOwner {
  return { node: name, network };
}

/** Addresses that two nodes have leased, or one that has no block with it. */
export function findWronglyLeased(nodes: readonly CheckedNode[]): string[] {
  const problems = findLeasedTwice(nodes);
  for (const node of nodes) {
    const blocks = node.blocks();
    for (const address of node.leases()) {
      const ip = parseIp(address);
      if (!blocks.some(one => blockContains(one, ip)))
        problems.push(`${address} is leased by ${node.name}, which has no block with it`);
    }
  }
  return problems;
}

/**
 * Addresses that two nodes have leased: what must hold at every moment, also while blocks change hands. Of a machine that moves, one node
 * has the address as a guest beside the other.
 */
export function findLeasedTwice(nodes: readonly Pick<CheckedNode, 'name' | 'leases' | 'blocks'>[]): string[] {
  const problems: string[] = [];
  const holders = new Map<string, (typeof nodes)[number][]>();
  for (const node of nodes)
    for (const address of node.leases()) {
      const all = [...(holders.get(address) ?? []), node];
      holders.set(address, all);
      const isShared = all.length === 2 && all.some(one => isGuest(one, address));
      if (all.length > 1 && !isShared)
        problems.push(`${address} is leased by ${all.map(({ name }) => name).join(' and by ')}`);
    }
  return problems;
}

function isGuest(node: Pick<CheckedNode, 'blocks'>, address: string): boolean {
  return node.blocks().some(block => block.guest && blockContains(block, parseIp(address)));
}
