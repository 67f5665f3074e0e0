// What must be known of a cluster's nodes for routes between them?
import type { Cidr, Ip } from '../net/ip.ts';

/** A node of the cluster. */
export interface ClusterNode {
  readonly name: string;
  /** Addresses by which other nodes reach it, the preferred ones first; the first of each IP version is used. */
  readonly addresses: readonly Ip[];
  /** Ranges whose addresses are those of its pods. A single address is a range, too. */
  readonly blocks: readonly Cidr[];
  /** When it came to the cluster, in a form that sorts by time: what two nodes claim, the older one has. */
  readonly since?: string | undefined;
}

/** Who is told what a source knows. */
export interface NodeEvents {
  /**
   * All nodes that exist now, this one among them. Called at least once when the source knows them, and after each change.
   * @param more addresses that no block contains, and why blocks were left out
   */
  nodes(
    nodes: readonly ClusterNode[],
    more?: { readonly never: readonly Ip[]; readonly problems: readonly string[] },
  ): void;
  /** Why they are not known at present; those that were told last still count. */
  problem(text: string): void;
}

/** Where nodes are learned from: it tells from now on, until it is closed. */
export interface NodeSource {
  close(): void;
}
