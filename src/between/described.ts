// How are nodes written as JSON?
import * as z from 'zod/mini';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { defined, describeIssue, parseJson } from '../cni/json.ts';
import { type Cidr, findCidr, findIp, type Ip, isIp, renderCidr, renderIp } from '../net/ip.ts';
import type { ClusterNode } from './node.ts';

const Address = z.string().check(z.refine(isIp, 'must be an IP address'));
const Block = z
  .string()
  .check(z.refine(text => findCidr(text) !== undefined, 'must be an address with a prefix'));

/** One node. */
const Described = z.strictObject({
  /** As the node itself is called. */
  name: z.string().check(z.minLength(1)),
  /** By which other nodes reach it; the first of each IP version is used. */
  addresses: z.array(Address),
  /** Ranges of its pods. */
  blocks: z.array(Block),
  /** When it came to the cluster, as `2026-11-26T13:00:00Z`: of two nodes with one address or block, the older one has it. */
  since: z.optional(z.string()),
});

/** One of {@link Described}. */
export type DescribedNode = z.infer<typeof Described>;

const OneOrSeveral = z.union(
  [Described, z.array(Described)],
  'must be a node with "name", "addresses" and "blocks", or a list of such',
);

/**
 * Reads one node, or a list.
 * @throws CniError 7 that names the file
 */
export function parseNodes(text: string, file: string): ClusterNode[] {
  const refuse = (problem: string) =>
    new CniError(ErrorCode.invalidConfig, `Cannot use nodes in "${file}": ${problem}`);
  const value = parseJson(text, refuse);
  const parsed = z.safeParse(Array.isArray(value) ? z.array(Described) : OneOrSeveral, value, {
    reportInput: true,
  });
  if (!parsed.success) throw refuse(parsed.error.issues.map(describeIssue).join('; '));
  return [parsed.data].flat().map(nodeOf);
}

/** The node; addresses and blocks that are none are left out. */
export function nodeOf({ name, addresses, blocks, since }: DescribedNode): ClusterNode {
  return {
    name,
    addresses: addresses.map(findIp).filter((ip): ip is Ip => ip !== undefined),
    blocks: blocks.map(findCidr).filter((cidr): cidr is Cidr => cidr !== undefined),
    ...defined({ since }),
  };
}

/** The description of a node. */
export function describeNode({ name, addresses, blocks, since }: ClusterNode): DescribedNode {
  return { name, addresses: addresses.map(renderIp), blocks: blocks.map(renderCidr), ...defined({ since }) };
}
