// What is the picture of a node that commands draw, search and compare?
//
// Plain data: what `catena ls --output json` prints. Fields of an attachment that come from its ADD and fields that come from the
// kernel are kept apart, so a reader can compare them.
import * as z from 'zod/mini';

/** A network device as the kernel has it now. */
export const NodeDevice = z.strictObject({
  name: z.string(),
  index: z.int(),
  /** `veth`, `bridge`, `macvlan`, …; empty for hardware. */
  kind: z.string(),
  mac: z.optional(z.string()),
  /** Bytes. */
  mtu: z.int(),
  up: z.boolean(),
  /** The bridge, or other master, that it is a port of. */
  master: z.optional(z.string()),
  /** With prefix length. */
  addresses: z.array(z.string()),
});
export type NodeDevice = z.output<typeof NodeDevice>;

/** A route in the main table of a container. */
export const NodeRoute = z.strictObject({
  /** With prefix length; `0.0.0.0/0` and `::/0` are default routes. */
  destination: z.string(),
  gateway: z.optional(z.string()),
});
export type NodeRoute = z.output<typeof NodeRoute>;

/** A port of the host that leads to a container. */
export const NodePort = z.strictObject({
  /** Absent if every address of the host leads there. */
  hostIP: z.optional(z.string()),
  hostPort: z.int(),
  containerPort: z.int(),
  /** `tcp`, `udp` or `sctp`. */
  protocol: z.string(),
});
export type NodePort = z.output<typeof NodePort>;

/** Limits in bits per second, seen from the container; absent is unlimited. */
export const NodeRates = z.strictObject({
  ingressBits: z.optional(z.int()),
  egressBits: z.optional(z.int()),
});
export type NodeRates = z.output<typeof NodeRates>;

/** Which program made an attachment. */
export const NodeOrigin = z.strictObject({
  /** `catena` or another program of this library; `podman`, `containerd`, … as far as the evidence goes; else `another runtime`. */
  runner: z.string(),
  /** Its plugins, if they are on record: paths of the executables, in order. */
  executables: z.array(z.string()),
  /** How that is known. */
  evidence: z.string(),
});
export type NodeOrigin = z.output<typeof NodeOrigin>;

/** What CHECK reported when the model was read with health. */
export const NodeHealth = z.strictObject({
  /** `unknown`: no CHECK could be run. */
  state: z.enum(['sound', 'broken', 'unknown']),
  problem: z.optional(z.string()),
});
export type NodeHealth = z.output<typeof NodeHealth>;

/** One interface of one container on one network. */
export const NodeAttachment = z.strictObject({
  network: z.string(),
  containerId: z.string(),
  ifname: z.string(),
  podNamespace: z.optional(z.string()),
  podName: z.optional(z.string()),
  /** The container's name, if its runtime's files tell. */
  containerName: z.optional(z.string()),
  /** `gone`: its namespace no longer exists. `unsettled`: an operation was cut off or failed. */
  state: z.enum(['attached', 'gone', 'unsettled']),
  /** Why it is not settled. */
  why: z.optional(z.string()),
  /** Path; empty if it is not on record. */
  netns: z.string(),
  /** ISO time of its ADD. */
  since: z.optional(z.string()),
  origin: NodeOrigin,
  /** The network through which a delegate runner attached it. */
  through: z.optional(z.string()),
  /** By the result of ADD, with prefix length. */
  addresses: z.array(z.string()),
  /** As configured, and as the runtime requested. */
  ports: z.array(NodePort),
  rates: NodeRates,
  /** What else its plugins hold it to, human-readable. */
  policies: z.array(z.string()),
  /** In the container. Absent if it does not exist, or could not be read. */
  device: z.optional(NodeDevice),
  /** Its other end, or its lower device, on the host. */
  hostDevice: z.optional(NodeDevice),
  routes: z.array(NodeRoute),
  health: z.optional(NodeHealth),
});
export type NodeAttachment = z.output<typeof NodeAttachment>;

/** A network: configured, or known only from its attachments. */
export const NodeNetwork = z.strictObject({
  name: z.string(),
  /** Absent if no file configures it. */
  file: z.optional(z.string()),
  cniVersion: z.optional(z.string()),
  plugins: z.array(z.string()),
  /** Directories with a file for each leased address. */
  leaseDirs: z.array(z.string()),
  /** How many of them are on record. */
  attachments: z.int(),
});
export type NodeNetwork = z.output<typeof NodeNetwork>;

/** A bridge of the host. */
export const NodeBridge = z.strictObject({
  device: NodeDevice,
  /** Names of its ports, sorted. */
  ports: z.array(z.string()),
});
export type NodeBridge = z.output<typeof NodeBridge>;

/** A range of addresses that a network hands out. */
export const NodePool = z.strictObject({
  network: z.string(),
  range: z.string(),
  used: z.int(),
  size: z.number(),
});
export type NodePool = z.output<typeof NodePool>;

/** The daemon: `none`, `gone` (it left its socket), `silent` or `answers`. */
export const NodeDaemon = z.strictObject({
  state: z.enum(['none', 'gone', 'silent', 'answers']),
  version: z.optional(z.string()),
  pid: z.optional(z.int()),
});
export type NodeDaemon = z.output<typeof NodeDaemon>;

/** A node at one moment. */
export const NodeModel = z.strictObject({
  /** ISO time. */
  time: z.string(),
  hostname: z.string(),
  version: z.string(),
  networks: z.array(NodeNetwork),
  attachments: z.array(NodeAttachment),
  /** Bridges that a network uses, or that an attachment is a port of. */
  bridges: z.array(NodeBridge),
  pools: z.array(NodePool),
  daemon: NodeDaemon,
  /** What could not be read, and why. */
  notes: z.array(z.string()),
});
export type NodeModel = z.output<typeof NodeModel>;
