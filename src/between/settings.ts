// What may an operator decide about the routes between nodes, and what do they report about themselves?
import { DEFAULT_PORT, DEFAULT_VNI } from './names.ts';
import type { Ways } from './plan.ts';

/** The value of `nodes` that means the Node objects of a cluster, with the ranges that the cluster assigned to them. */
export const KUBERNETES = 'kubernetes';
/** The value that means Node objects, with the blocks that their nodes claimed by the plugin `cluster`. */
export const BLOCKS = 'blocks';

/** What an operator decides. */
export interface BetweenSettings {
  /** Where nodes are learned from: a file or directory, {@link KUBERNETES} or {@link BLOCKS}; undefined: there are no routes to other nodes. */
  readonly nodes: string | undefined;
  /** For {@link KUBERNETES} and {@link BLOCKS}; undefined: the account of the pod that the daemon runs in. */
  readonly kubeconfig: string | undefined;
  /** Subnets that hold the blocks of all nodes; undefined: any. */
  readonly clusterCidrs: readonly string[] | undefined;
  readonly ways: Ways;
  readonly vni: number;
  readonly port: number;
}

/** Default settings. */
export const BETWEEN_SETTINGS: BetweenSettings = {
  nodes: undefined,
  kubeconfig: undefined,
  clusterCidrs: undefined,
  ways: 'auto',
  vni: DEFAULT_VNI,
  port: DEFAULT_PORT,
};

/** As `GET /v1/state` shows it. */
export interface BetweenState {
  /** Name of this node. */
  readonly own: string;
  /** Other nodes that are known, and routes to their blocks that are wanted. */
  readonly nodes: number;
  readonly routes: number;
  /** MTU of each tunnel. */
  readonly tunnels: Readonly<Record<string, number>>;
  /** What could not be planned or made, human-readable. */
  readonly problems: readonly string[];
  /** Times that the kernel's state was made as planned again, after the nodes changed and after others changed it. */
  readonly changes: { readonly planned: number; readonly repaired: number };
}
