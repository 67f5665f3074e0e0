// In which ways do other programs damage what a chain made on a node, as lines that an operator could have typed?

/** What the lines of a damage name. */
export interface DamagedNames {
  /** The bridge, its address with the prefix length, and its subnet. */
  readonly bridge: string;
  readonly gateway: string;
  readonly subnet: string;
  /** The container's device on the host, and its id. */
  readonly port: string;
  readonly id: string;
  /** Name of the list's file. */
  readonly file?: string;
}

/** One way to damage a node. */
export interface Damage {
  /** A line for `sh -c`. */
  line(names: DamagedNames): string;
  /** Where it is typed; by default on the host. */
  readonly inside?: 'container';
  /** Takes it back, for what is not the node's to repair. */
  undo?(names: DamagedNames): string;
}

const FORWARD = 'add chain inet fw forward { type filter hook forward priority 0; policy';

/** Damage that any of our attachments can suffer. */
export const DAMAGES = {
  'rules flushed': { line: () => 'nft flush ruleset' },
  'device deleted': { line: ({ port }) => `ip link del ${port}` },
  'address removed': { line: ({ gateway, bridge }) => `ip addr del ${gateway} dev ${bridge}` },
  'bridge down': { line: ({ bridge }) => `ip link set ${bridge} down` },
  'default route deleted': { line: () => 'ip route del default', inside: 'container' },
  'forwarding off': {
    line: () => 'sysctl -qw net.ipv4.ip_forward=0',
    undo: () => 'sysctl -qw net.ipv4.ip_forward=1',
  },
  'foreign drop': {
    line: ({ bridge }) =>
      `nft 'add table inet fw; ${FORWARD} accept; }; add rule inet fw forward iifname "${bridge}" drop'`,
    undo: () => 'nft delete table inet fw',
  },
  'foreign policy': {
    line: () => `nft 'add table inet fw; ${FORWARD} drop; }'`,
    undo: () => 'nft delete table inet fw',
  },
  'foreign DNAT': {
    line: () =>
      "nft 'add table ip other; add chain ip other pre { type nat hook prerouting priority -110; }; add rule ip other pre tcp dport 8080 dnat to 10.9.9.9'",
    undo: () => 'nft delete table ip other',
  },
  'route inside the subnet': {
    line: ({ gateway }) => `ip route add ${within(gateway)} dev outside0`,
    undo: ({ gateway }) => `ip route del ${within(gateway)} dev outside0`,
  },
} satisfies Record<string, Damage>;

/** 10.88.0.1/16 → 10.88.0.128/25 */
function within(gateway: string): string {
  return gateway.replace(/\.\d+\/\d+$/, '.128/25');
}
