// By which names and numbers do we recognise what we made between nodes?

/** Origin of every route of ours, as `ip route show proto 67` lists them; linux/rtnetlink.h assigns no program this number. */
export const PROTOCOL = 67;

/** Metric of the routes to other nodes: a route of another program to the same block, with a smaller one, comes before ours. */
export const METRIC = 6700;

/** Table with this node's own blocks, in which no packet is looked up: a routing daemon reads it. */
export const EXPORT_TABLE = 6700;

/** Metric of the routes that refuse what no pod of this node has; Documentation/networking/vrf.rst: above that of any other route. */
export const LAST_METRIC = 4_278_198_272;

/** VXLAN network identifier, unless configured: flannel has 1, Calico 4096. */
export const DEFAULT_VNI = 6700;

/** UDP port of the tunnels, unless configured: the one that IANA assigned to VXLAN. flannel and Cilium use 8472. */
export const DEFAULT_PORT = 4789;

/** The tunnel over each IP version. */
export const TUNNELS = { 4: 'catena-vxlan', 6: 'catena-vxlan6' } as const;

/** The note on both, by which they are known to be ours. */
export const TUNNEL_ALIAS = 'catena: way to other nodes';

/** The note about nodes: in the run directory, which is empty after a boot, as is the kernel. */
export function noteFileOf(runDir: string): string {
  return `${runDir}/between.json`;
}
