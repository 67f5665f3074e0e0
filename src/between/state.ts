// What do the routes between nodes report about themselves?

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

/** Routes to other nodes. */
export interface BetweenView {
  /** Name of this node, and number of the others. */
  readonly own: string;
  readonly nodes: number;
  readonly routes: number;
  /** What cannot be planned. */
  readonly problems: readonly string[];
  /** What is missing or too much in the kernel. */
  readonly differences: readonly string[];
}
