// What must be known of a cluster's nodes for routes between them?
import type { Cidr } from '../net/cidr.ts';
import type { Ip } from '../net/ip.ts';

/** A node of the cluster. */
export interface ClusterNode {
  readonly name: string;
  /** Addresses by which other nodes reach it, the preferred ones first; the first of each IP version is used. */
  readonly addresses: readonly Ip[];
  /** Ranges whose addresses are those of its pods. A single address is a range, too. */
  readonly blocks: readonly Cidr[];
}

/** Who is told what a source knows. */
export interface NodeEvents {
  /** All nodes that exist now, this one among them. Called at least once when the source knows them, and after each change. */
  nodes(nodes: readonly ClusterNode[]): void;
  /** Why they are not known at present; those that were told last still count. */
  problem(text: string): void;
}

/** Where nodes are learned from: it tells from now on, until it is closed. */
export interface NodeSource {
  close(): void;
}
