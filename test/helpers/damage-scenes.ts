// Which damages must a daemon under policy `repair` deal with, and what must come of each?
import type { DamageRow, Scene } from './damage-table.ts';
import { DAMAGES } from './damages.ts';
import type { Row } from './netns.ts';

/** A list with everything that can be damaged; `net` is the second number of its addresses. */
export function shopList(name: string, net: number): Row {
  const rate = 400_000_000;
  return {
    cniVersion: '1.0.0',
    name,
    plugins: [
      {
        type: 'bridge',
        bridge: `${name}0`,
        isDefaultGateway: true,
        ipMasq: true,
        hairpinMode: true,
        macspoofchk: true,
        ipam: { type: 'host-local', subnet: `10.${net}.0.0/24` },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
      {
        type: 'bandwidth',
        ...{ ingressRate: rate, ingressBurst: rate / 8, egressRate: rate, egressBurst: rate / 8 },
      },
      { type: 'firewall' },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' } },
    ],
  };
}

/** A list for a neighbour, without the shared kind of device that one of the damages deletes for all. */
export function quietList(name: string, net: number): Row {
  const { plugins, ...list } = shopList(name, net);
  return { ...list, plugins: plugins.filter(({ type }: Row) => type !== 'bandwidth') };
}

// Damage that CHECK reports in the same words counts as a repair that did not last, so such scenes are apart.
export const SCENES: readonly Scene[] = [
  {
    ...{ way: 'nft flush ruleset', damage: DAMAGES['rules flushed'], outcome: 'repaired' },
    tells:
      /^something flushed nf_tables: the rules of 2 containers \((\w+\/)?(web|peer), (\w+\/)?(web|peer)\) of/,
  },
  { way: 'the address of the bridge removed', damage: DAMAGES['address removed'], outcome: 'repaired' },
  { way: 'the bridge set down', damage: DAMAGES['bridge down'], outcome: 'repaired' },
  {
    way: 'the default route in the container deleted',
    damage: DAMAGES['default route deleted'],
    outcome: 'repaired',
  },
  {
    way: 'ip_forward set to 0',
    damage: DAMAGES['forwarding off'],
    outcome: 'repaired',
    finds: ['attachments', 'kernel.forwarding'],
  },
  {
    way: 'a foreign rule that drops forwarded packets',
    damage: DAMAGES['foreign drop'],
    outcome: 'doctor: kernel.foreign-rules',
  },
  {
    way: 'a foreign policy of drop',
    damage: DAMAGES['foreign policy'],
    outcome: 'doctor: kernel.foreign-rules',
  },
  {
    way: 'a foreign DNAT of the same port',
    damage: DAMAGES['foreign DNAT'],
    outcome: 'doctor: kernel.foreign-rules',
  },
  {
    way: 'a route of the node inside the subnet',
    damage: DAMAGES['route inside the subnet'],
    outcome: 'doctor: network.subnet-overlap',
    mend: 'undo',
  },
  {
    way: 'nft delete table inet catena_portmap',
    tells:
      /^something deleted table "inet catena_portmap": the rules of 1 container \((\w+\/)?web\) of network "shop"/,
    damage: { line: () => 'nft delete table inet catena_portmap' },
    outcome: 'repaired',
  },
  {
    way: 'the rate of the port deleted',
    damage: { line: ({ port }) => `tc qdisc del dev ${port} root` },
    outcome: 'repaired',
  },
  {
    way: 'the elements of all host ports deleted',
    damage: {
      line: () =>
        "nft -j list ruleset | grep -q catena_portmap; for m in $(nft list table inet catena_portmap | sed -n 's/^[[:space:]]*\\(map\\) \\([^ ]*\\) .*/\\2/p'); do nft flush map inet catena_portmap $m; done",
    },
    outcome: 'repaired',
  },
  {
    way: 'the ifb device deleted',
    damage: {
      line: () =>
        "for d in $(ip -o link show type ifb | sed 's/^[0-9]*: \\([^:@]*\\).*/\\1/'); do ip link del $d; done",
    },
    outcome: 'repaired',
  },
  {
    way: 'the device of the container set down on the host',
    damage: { line: ({ port }) => `ip link set ${port} down` },
    outcome: 'repaired',
  },
  {
    way: 'the device taken from the bridge',
    damage: { line: ({ port }) => `ip link set ${port} nomaster` },
    outcome: 'repaired',
  },
  {
    way: 'the hairpin mode turned off',
    damage: { line: ({ port }) => `ip link set ${port} type bridge_slave hairpin off` },
    outcome: 'repaired',
  },
  {
    way: 'the address in the container removed',
    damage: {
      line: () => 'ip -4 addr flush dev eth0',
      inside: 'container',
      undo: () => 'ip addr add 10.66.0.2/24 brd 10.66.0.255 dev eth0; ip route add default via 10.66.0.1',
    },
    outcome: 'repaired',
  },
  {
    way: 'the interface in the container set down',
    damage: { line: () => 'ip link set eth0 down', inside: 'container' },
    outcome: 'repaired',
  },
  {
    way: 'the hardware address in the container changed',
    damage: {
      line: () =>
        'cat /sys/class/net/eth0/address > /dev/shm/mac; ip link set eth0 address 02:00:00:00:00:07',
      undo: () => 'ip link set eth0 address $(cat /dev/shm/mac)',
      inside: 'container',
    },
    outcome: 'repaired',
  },
  {
    // The list sets none.
    way: 'the MTU in the container changed',
    damage: {
      line: () => 'ip link set eth0 mtu 1280',
      undo: () => 'ip link set eth0 mtu 1500',
      inside: 'container',
    },
    outcome: 'unharmed',
    mend: 'undo',
  },
  {
    way: 'a sysctl in the container changed',
    damage: { line: () => 'sysctl -qw net.core.somaxconn=7', inside: 'container' },
    outcome: 'repaired',
  },
  {
    way: 'a wrong permanent neighbour in the container',
    damage: {
      line: () => 'ip neigh replace 10.66.0.1 lladdr 02:00:00:00:00:09 dev eth0 nud permanent',
      undo: () => 'ip neigh del 10.66.0.1 dev eth0',
      inside: 'container',
    },
    outcome: 'repaired',
  },
  {
    way: 'the route of the subnet deleted',
    damage: { line: ({ subnet, bridge }) => `ip route del ${subnet} dev ${bridge}` },
    outcome: 'repaired',
  },
  {
    way: 'the rules against spoofing deleted',
    damage: { line: () => 'nft delete table bridge catena_macspoof' },
    outcome: 'repaired',
  },
  {
    way: 'iptables -F FORWARD',
    damage: { line: () => 'iptables -F FORWARD' },
    outcome: 'repaired',
  },
  {
    way: 'iptables -P FORWARD DROP',
    // The firewall plugin accepts what the container sends, the answers, and connections to its published ports.
    damage: { line: () => 'iptables -P FORWARD DROP', undo: () => 'iptables -P FORWARD ACCEPT' },
    outcome: 'unharmed',
    mend: 'undo',
  },
  {
    way: 'conntrack -F',
    damage: { line: () => 'conntrack -F 2>/dev/null' },
    outcome: 'unharmed',
  },
  {
    way: 'the lease deleted',
    damage: { line: () => 'rm /var/lib/cni/networks/shop/10.66.0.2' },
    outcome: 'repaired',
  },
  {
    // What was configured at ADD counts.
    way: 'the list removed',
    damage: {
      line: ({ file }) => `mv /etc/cni/net.d/${file} /run/`,
      undo: ({ file }) => `mv /run/${file} /etc/cni/net.d/`,
    },
    outcome: 'unharmed',
    findsFor: { 'our own runner': ['configuration.unlisted'] },
    mend: 'undo',
  },
  {
    way: 'a list that is cut off',
    damage: {
      line: () => 'echo { > /etc/cni/net.d/zz.conflist',
      undo: () => 'rm /etc/cni/net.d/zz.conflist',
    },
    outcome: 'doctor: configuration.broken',
    mend: 'undo',
  },
  {
    way: 'a directory that every user may write to',
    damage: { line: () => 'chmod 777 /run/catena', undo: () => 'chmod 755 /run/catena' },
    outcome: 'doctor: permissions',
  },
  {
    way: 'the cached result cut off',
    damage: {
      line: ({ id }) => `cp ${cacheOf(id)} /run/kept; truncate -s 20 ${cacheOf(id)}`,
      undo: ({ id }) => `cp /run/kept ${cacheOf(id)}`,
    },
    outcome: 'doctor: state.damaged',
    mend: 'undo',
  },
  {
    way: 'a note and its entry cut off',
    damage: {
      line: ({ id }) =>
        [
          `cp ${cacheOf(id)} /run/kept; truncate -s 20 ${cacheOf(id)}`,
          `mkdir -p $(dirname ${noteOf(id)}); echo '{"record":1' > ${noteOf(id)}`,
        ].join('; '),
      undo: ({ id }) => `cp /run/kept ${cacheOf(id)}; rm ${noteOf(id)}`,
    },
    outcome: 'doctor: state.damaged',
    mend: 'undo',
  },
];

/** More damage, as users did it in trials and as other programs do it. */
const TRIALS: readonly DamageRow[] = [
  {
    way: 'nft delete table inet catena_masquerade',
    damage: { line: () => 'nft delete table inet catena_masquerade' },
  },
  {
    way: 'the rate of what the container sends deleted',
    damage: { line: ({ port }) => `tc qdisc del dev ${port} ingress` },
  },
  { way: 'the bridge deleted', damage: { line: ({ bridge }) => `ip link del ${bridge}` } },
  {
    way: 'forwarding of the bridge turned off',
    damage: { line: ({ bridge }) => `sysctl -qw net.ipv4.conf.${bridge}.forwarding=0` },
    mayFind: ['attachments'],
    finds: ['kernel.forwarding'],
  },
  {
    way: 'iptables flushed',
    damage: { line: () => 'iptables -F; iptables -t nat -F; iptables -X; iptables -t nat -X' },
  },
  {
    way: 'all addresses and routes of the bridge flushed',
    damage: { line: ({ bridge }) => `ip addr flush dev ${bridge}; ip route flush dev ${bridge}` },
  },
  {
    way: 'the default route in the container given a router that is not there',
    damage: { line: () => 'ip route replace default via 10.66.0.99', inside: 'container' },
  },
  {
    way: 'the bridge deleted, and made again by another program',
    damage: {
      line: ({ bridge }) =>
        `ip link del ${bridge}; ip link add ${bridge} type bridge; ip link set ${bridge} up`,
    },
  },
  {
    way: 'the MTU of the device of the container lowered on the host',
    damage: { line: ({ port }) => `ip link set ${port} mtu 1300` },
    finds: ['network.mtu'],
  },
  {
    way: 'a routing rule that drops what containers send',
    damage: { line: ({ subnet }) => `ip rule add from ${subnet} priority 10 blackhole` },
    finds: ['kernel.routing-rules'],
  },
  {
    way: 'a route to the address of the container through another device',
    damage: { line: () => 'ip route add $(ls $LEASES | grep -m 1 ^10.)/32 dev outside0' },
    mayFind: ['attachments'],
    finds: ['network.subnet-overlap'],
  },
  {
    way: 'a route that bans the container, as fail2ban makes it',
    damage: { line: () => 'ip route add unreachable $(ls $LEASES | grep -m 1 ^10.)/32' },
    finds: ['kernel.routing-rules'],
  },
  {
    way: 'the address of the container given to the node',
    damage: { line: () => 'ip addr add $(ls $LEASES | grep -m 1 ^10.)/32 dev lo' },
    finds: ['kernel.routing-rules'],
  },
  {
    way: 'a rule about bridged packets that drops what is sent to containers',
    damage: {
      line: () =>
        "nft 'add table bridge f; add chain bridge f out { type filter hook output priority 0; }; add rule bridge f out ip daddr 10.66.0.0/24 drop'",
    },
    finds: ['kernel.foreign-rules'],
  },
  {
    way: 'a policy that drops bridged packets',
    damage: {
      line: () =>
        "nft 'add table bridge p; add chain bridge p pre { type filter hook prerouting priority 0; policy drop; }'",
    },
    finds: ['kernel.foreign-rules'],
  },
  {
    way: 'a foreign rule before all others that drops the port',
    damage: {
      line: () =>
        "nft 'add table ip early; add chain ip early pre { type filter hook prerouting priority -300; }; add rule ip early pre tcp dport 8080 drop'",
    },
    finds: ['kernel.foreign-rules'],
  },
  {
    way: 'a wrong permanent neighbour on the host',
    damage: {
      line: ({ bridge }) =>
        `ip neigh replace $(ls $LEASES | grep -m 1 ^10.) lladdr 02:00:00:00:00:09 dev ${bridge} nud permanent`,
    },
  },
  {
    way: 'a routing rule that prohibits what is sent to containers',
    damage: { line: ({ subnet }) => `ip rule add to ${subnet} priority 10 prohibit` },
    finds: ['kernel.routing-rules'],
  },
  {
    way: 'iptables -I FORWARD -i <bridge> -j DROP',
    damage: { line: ({ bridge }) => `iptables -I FORWARD -i ${bridge} -j DROP` },
    finds: ['kernel.foreign-rules'],
  },
  {
    way: 'a rule of iptables in the table raw that drops the port',
    damage: { line: () => 'iptables -t raw -I PREROUTING -p tcp --dport 8080 -j DROP' },
    finds: ['kernel.foreign-rules'],
  },
  {
    way: 'a DNAT of iptables of the same port',
    damage: {
      line: () => 'iptables -t nat -I PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.9.9.9:80',
    },
    finds: ['kernel.foreign-rules'],
  },
  {
    way: 'the rate of the port made slower',
    damage: {
      line: ({ port }) => `tc qdisc replace dev ${port} root tbf rate 800kbit burst 15400 latency 50ms`,
    },
  },
  {
    way: 'the directory of lists made writable for every user',
    damage: { line: () => 'chmod 777 /etc/cni/net.d' },
    finds: ['permissions'],
  },
  {
    way: 'the directory of records made writable for every user',
    damage: { line: () => 'mkdir -p /var/lib/catena; chmod 777 /var/lib/catena' },
    finds: ['permissions'],
  },
  {
    way: 'the directory of results and leases made writable for every user',
    damage: { line: () => 'chmod 777 /var/lib/cni' },
    finds: ['permissions'],
  },
  {
    way: 'a file of sysctl.d that turns forwarding off',
    damage: {
      line: () => 'mkdir -p /etc/sysctl.d; printf "net.ipv4.ip_forward = 0" > /etc/sysctl.d/99-zz.conf',
    },
    finds: ['kernel.sysctl-files'],
  },
  {
    way: 'a unit that refuses executable memory',
    damage: {
      line: () =>
        "mkdir -p /etc/systemd/system/crio.service.d; printf '[Service]\\nMemoryDenyWriteExecute=yes\\n' > /etc/systemd/system/crio.service.d/zz.conf",
      undo: () => 'rm -r /etc/systemd/system/crio.service.d',
    },
    finds: ['kernel.executable-memory'],
    mend: 'undo',
  },
  {
    way: 'ufw enabled',
    damage: {
      line: () => 'mkdir -p /etc/ufw; echo ENABLED=yes > /etc/ufw/ufw.conf',
      undo: () => 'rm /etc/ufw/ufw.conf',
    },
    finds: ['kernel.firewall-managers'],
    mend: 'undo',
  },
  {
    way: 'a list of a version that does not exist',
    damage: {
      line: () =>
        `echo '{"cniVersion": "9.9.9", "name": "zz", "plugins": [{"type": "loopback"}]}' > /etc/cni/net.d/zz.conflist`,
      undo: () => 'rm /etc/cni/net.d/zz.conflist',
    },
    finds: ['configuration.broken'],
    mend: 'undo',
  },
  {
    way: 'a second list of the same name',
    damage: {
      line: ({ file }) => `cp /etc/cni/net.d/${file} /etc/cni/net.d/zz.conflist`,
      undo: () => 'rm /etc/cni/net.d/zz.conflist',
    },
    finds: ['configuration.broken'],
    mend: 'undo',
  },
  {
    way: 'the directory of records on a file system that is read-only',
    damage: {
      line: () =>
        'mkdir -p /var/lib/catena; mount --bind /var/lib/catena /var/lib/catena; mount -o remount,ro,bind /var/lib/catena',
      undo: () => 'umount /var/lib/catena',
    },
    finds: ['state.storage'],
    mend: 'undo',
  },
  {
    way: 'a plugin overwritten with something else',
    damage: {
      line: () =>
        'echo garbage > /run/portmap; chmod 755 /run/portmap; mount --bind /run/portmap /opt/cni/bin/portmap',
      undo: () => 'umount /opt/cni/bin/portmap',
    },
    finds: ['attachments', 'executables'],
    mend: 'undo',
  },
  {
    way: 'a plugin without the right to be executed',
    damage: {
      line: () =>
        'cp /opt/cni/bin/portmap /run/portmap; chmod 644 /run/portmap; mount --bind /run/portmap /opt/cni/bin/portmap',
      undo: () => 'umount /opt/cni/bin/portmap',
    },
    finds: ['attachments', 'executables'],
    mend: 'undo',
  },
  {
    way: 'the loopback in the container set down',
    damage: { line: () => 'ip link set lo down', undo: () => 'ip link set lo up', inside: 'container' },
    finds: [],
    // It has a list of loopback's, of a version from before CHECK.
    findsFor: { containerd: ['attachments'] },
    mend: 'undo',
  },
];

/**
 * The scenes in as many parts, which are played beside each other, each on a node of its own. Each part begins with the first scene,
 * a flush of all rules, and keeps neighbours together: rules of iptables that are there hide what later scenes do to them.
 */
export function scenesApart(parts: number): readonly (readonly Scene[])[] {
  const size = Math.ceil(SCENES.length / parts);
  return Array.from({ length: parts }, (_, part) => {
    const own = SCENES.slice(part * size, (part + 1) * size);
    return part === 0 ? own : [...SCENES.slice(0, 1), ...own];
  });
}

/** Damage that is none of an attachment, and what must come of each, in the order in which it is played. */
export const NODE_WAYS: readonly (readonly [way: string, outcome: string])[] = [
  ['the last address of a pool in use', 'doctor: ipam.pools'],
  ['a namespace removed without a DEL, in a full pool', 'deleted; the pool has room'],
  ['the daemon killed', 'doctor: daemon'],
  ['nft flush ruleset while no daemon runs', 'repaired'],
  ['the daemon killed in the middle of a repair, 10 times', 'repaired'],
  ['the daemon stopped by SIGSTOP', 'doctor: daemon; containers come and go'],
  ['nft flush ruleset while the daemon is stopped', 'repaired'],
];

/** All that is damaged one after the other, and what doctor finds and prints has to mend; the last is beyond repair. */
export const damageRows = (): readonly (DamageRow & Partial<Scene>)[] => [
  ...SCENES,
  ...TRIALS,
  BEYOND_REPAIR,
];

/** Nothing but a new container helps. */
export const BEYOND_REPAIR: Scene = {
  way: 'the device of the container deleted',
  damage: DAMAGES['device deleted'],
  outcome: 'given up, without traffic',
};

function noteOf(id: string): string {
  return `/var/lib/catena/unsettled/shop/${id}:eth0`;
}

function cacheOf(id: string): string {
  return `/var/lib/cni/results/shop-${id}-eth0`;
}
