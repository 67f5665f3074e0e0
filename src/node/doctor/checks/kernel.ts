// Are the kernel and the programs that configure it set up so that containers are reachable?

import { basename, dirname } from 'node:path';
import { asWord } from '../../../net/interface.ts';
import { cidrContains, findIp, renderCidr } from '../../../net/ip.ts';
import { NF_DROP, type Verdict } from '../../../netlink/nft/expr.ts';
import type { Chain, Rule as FilterRule } from '../../../netlink/nft/table.ts';
import { RT_TABLE_MAIN } from '../../../netlink/rtnl/route.ts';
import { type Rule, renderRule, ruleDeletion } from '../../../netlink/rtnl/rule.ts';
import type { FilterTable } from '../../../netlink/tables.ts';
import { earlyDrops } from '../../devices.ts';
import { some } from '../../words.ts';
import { acceptDevices, findFates, inNft, type PodFate, ruleRemoval } from '../filter/walk.ts';
import {
  type Check,
  groupBy,
  type NodeView,
  namePods,
  type Problem,
  problem,
  type RoutedPod,
} from '../finding.ts';

/** With br_netfilter, packets between two ports of a bridge pass iptables as well. */
export const bridgeNetfilter: Check = ({ read }) => {
  const [v4, v6] = ['iptables', 'ip6tables'].map(table =>
    read(`/proc/sys/net/bridge/bridge-nf-call-${table}`)?.trim(),
  );
  if (v4 === undefined && v6 === undefined) return 'bridged packets do not pass iptables';
  if (v4 === v6) return `bridged packets ${v4 === '1' ? 'pass' : 'do not pass'} iptables, in both families`;
  const found = `bridge-nf-call-iptables is ${v4}, bridge-nf-call-ip6tables is ${v6}: the families are filtered differently`;
  const off = v4 === '1' ? 'ip6tables' : 'iptables';
  return [problem('warning', found, `sysctl -w net.bridge.bridge-nf-call-${off}=1`)];
};

/** Names of the tables of the iptables before nf_tables. */
const LEGACY = ['/proc/net/ip_tables_names', '/proc/net/ip6_tables_names'];

/** Two packet filters at once: each may drop packets that the other accepts. */
export const packetFilters: Check = ({ read, list }) => {
  const hidden = LEGACY.find(
    path => read(path) === undefined && list(dirname(path)).includes(basename(path)),
  );
  if (hidden !== undefined)
    return [problem('unexamined', `the legacy iptables: this user may not read "${hidden}"`)];
  const tables = LEGACY.flatMap(path => (read(path) ?? '').split('\n').filter(Boolean));
  if (tables.length === 0) return 'only nf_tables filters packets';
  const found = `the legacy iptables has tables (${[...new Set(tables)].join(', ')}) in addition to nf_tables: a packet must pass both`;
  const mend = 'see iptables-legacy-save; flush the rules that are not needed, or use only one of the two';
  return [problem('warning', found, mend)];
};

/** A firewall manager reloads its rules and discards rules that it does not know. */
export const firewallManagers: Check = ({ read, list }) => {
  const hasFirewalld = list('/run/firewalld').length > 0 || read('/run/firewalld.pid') !== undefined;
  const hasUfw =
    /^ENABLED=yes/m.test(read('/etc/ufw/ufw.conf') ?? '') &&
    !/^DEFAULT_FORWARD_POLICY="?ACCEPT/m.test(read('/etc/default/ufw') ?? '');
  const problems = [...(hasFirewalld ? [FIREWALLD] : []), ...(hasUfw ? [UFW] : [])];
  return problems.length ? problems : 'no other software manages the packet filter';
};

const FIREWALLD = problem(
  'info',
  'firewalld runs: a reload removes rules that it does not manage, and its zones drop forwarded packets',
  'the firewall plugin registers containers with it; after a reload run catena repair',
);
const UFW = problem(
  'warning',
  'ufw is enabled and drops forwarded packets by default',
  'ufw default allow routed  # or use the firewall plugin',
);

/** systemd.unit(5): the first unit file of a name is used. */
const UNIT_DIRS = [
  '/etc/systemd/system',
  '/run/systemd/system',
  '/usr/local/lib/systemd/system',
  '/usr/lib/systemd/system',
  '/lib/systemd/system',
];
/** Whatever runs plugins, by the names that distributions use. */
const UNITS = ['containerd', 'crio', 'cri-o', 'docker', 'podman', 'k3s', 'k3s-agent', 'kubelet', 'catena'];
const SETTING = /^\s*MemoryDenyWriteExecute\s*=\s*(\S*)\s*$/gm;
const YES = ['1', 'yes', 'true', 'on', 'y', 't'];

/** Such a service is inherited by the plugins that it starts: each ADD and DEL fails. */
export const executableMemory: Check = node => {
  const problems = UNITS.flatMap(unit => {
    const settings = unitFilesOf(node, unit).flatMap(file =>
      [...(node.read(file) ?? '').matchAll(SETTING)].map(([, value = '']) => ({ file, value })),
    );
    const { file, value = '' } = settings.at(-1) ?? {};
    if (!YES.includes(value.toLowerCase())) return [];
    const found = `"${file}" sets MemoryDenyWriteExecute: plugins that ${unit} starts cannot call the C library, so each ADD and DEL fails`;
    const mend = `systemctl edit ${unit}  # [Service] MemoryDenyWriteExecute=no, then restart it`;
    return problem('error', found, mend);
  });
  return problems.length ? problems : 'no service of a runtime refuses executable memory to plugins';
};

/** In the order in which they apply. */
function unitFilesOf(node: NodeView, unit: string): string[] {
  const file = UNIT_DIRS.find(dir => node.list(dir).includes(`${unit}.service`));
  const dropIns = UNIT_DIRS.map(dir => `${dir}/${unit}.service.d`);
  return [...(file === undefined ? [] : [`${file}/${unit}.service`]), ...confFilesIn(dropIns, node)];
}

// Package upgrades and configuration tools run it, and it writes what is in these files, long after an ADD enabled forwarding.

/** sysctl.d(5) */
const SYSCTL_DIRS = [
  '/etc/sysctl.d',
  '/run/sysctl.d',
  '/usr/local/lib/sysctl.d',
  '/usr/lib/sysctl.d',
  '/lib/sysctl.d',
];
/** Applies after all others. */
const LAST = '/etc/sysctl.conf';

/** What plugins with a gateway enable, and what is lost without it. */
const NEEDED: readonly (readonly [key: string, loss: string])[] = [
  ['net.ipv4.ip_forward', 'forwards no IPv4 of containers'],
  ['net.ipv4.conf.all.forwarding', 'forwards no IPv4 of containers'],
  ['net.ipv6.conf.all.forwarding', 'forwards no IPv6 of containers'],
];

/** A file that turns forwarding off takes the containers' network away at some later time. */
export const sysctlFiles: Check = node => {
  const values = new Map<string, { readonly file: string; readonly value: string }>();
  for (const file of [...confFilesIn(SYSCTL_DIRS, node), LAST]) {
    for (const { key, value } of settingsIn(node.read(file) ?? '')) values.set(key, { file, value });
  }
  const problems = NEEDED.flatMap(([key, loss]) => {
    const { file, value } = values.get(key) ?? {};
    if (value !== '0') return [];
    const found = `"${file}" sets "${key}" to 0: after "sysctl --system", which package upgrades run, the node ${loss}`;
    return problem('warning', found, `printf '\\n%s\\n' '${key} = 1' >> ${file}`);
  });
  return problems.length ? problems : 'no file of "sysctl --system" turns forwarding off';
};

/** A file hides those of its name in later directories; all of them apply in the order of their names. */
function confFilesIn(dirs: readonly string[], { list }: NodeView): string[] {
  const byName = new Map<string, string>();
  for (const dir of dirs) {
    for (const name of list(dir))
      if (name.endsWith('.conf') && !byName.has(name)) byName.set(name, `${dir}/${name}`);
  }
  return [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, file]) => file);
}

/** sysctl.d(5): comments begin with `#` or `;`, a leading `-` ignores failures, and slashes may stand for dots. */
function settingsIn(text: string): { key: string; value: string }[] {
  return text.split('\n').flatMap(line => {
    const [, name, value] = /^\s*-?([^#;=\s][^=]*?)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    return name === undefined || value === undefined ? [] : { key: name.replaceAll('/', '.'), value };
  });
}

/** Without forwarding, containers reach this node and each other on one bridge, and nothing else. */
export const forwarding: Check = node => {
  const problems = SWITCHES.flatMap(one => judge(node, one));
  return problems.length ? problems : 'IPv4 and IPv6 forwarding is enabled';
};

const SWITCHES = [
  { family: 4, path: '/proc/sys/net/ipv4/ip_forward', key: 'net.ipv4.ip_forward' },
  { family: 6, path: '/proc/sys/net/ipv6/conf/all/forwarding', key: 'net.ipv6.conf.all.forwarding' },
];

function judge(node: NodeView, { family, path, key }: (typeof SWITCHES)[number]): Problem[] {
  const pods = node.pods?.filter(pod => pod.family === family);
  if (node.read(path)?.trim() !== '0') return family === 4 ? judgeDevices(node, pods ?? []) : [];
  const found = `"${path}" is 0: the node forwards no IPv${family}`;
  const mend = `sysctl -w ${key}=1`;
  if (pods === undefined)
    return [problem('unexamined', `${found}; whether containers need it could not be seen`, mend)];
  if (pods.length > 0) return [problem('error', `${found} of ${namePods(pods, node)}`, mend)];
  const until = `${found} until a plugin with a gateway enables it, and stops when it is disabled again`;
  return [problem('info', until, mend)];
}

/** For IPv4, the kernel asks the device on which a packet arrives; for IPv6, only the switch for all (ip6_forward()). */
function judgeDevices(node: NodeView, pods: readonly RoutedPod[]): Problem[] {
  const uplinks = node.routes.all.filter(({ dst }) => dst.prefix === 0 && dst.ip.family === 4);
  const devices = new Set([...pods, ...(pods.length ? uplinks : [])].map(({ device }) => device));
  return [...devices].flatMap(device => {
    const path = `/proc/sys/net/ipv4/conf/${device}/forwarding`;
    if (node.read(path)?.trim() !== '0') return [];
    const found = `"${path}" is 0: the node forwards no IPv4 that arrives there, to or from ${namePods(pods, node)}`;
    return problem('error', found, `sysctl -w ${asWord(`net/ipv4/conf/${device}/forwarding=1`)}`);
  });
}

/** Routing rules and routes that drop, and addresses that the node has as well. */
export const routingRules: Check = node => {
  const { pods, policyRules } = node;
  if (pods === undefined) {
    const found = 'whether routing drops packets of containers: it is not known which there are';
    return [problem('unexamined', found)];
  }
  const rules = pods.length > 0 ? (policyRules?.() ?? []) : [];
  const dropped = earlyDrops(rules).flatMap(rule => {
    const concerned = pods.filter(pod => concerns(rule, pod));
    if (concerned.length === 0) return [];
    const found = `the routing rule "${renderRule(rule)}" drops packets of ${namePods(concerned, node)}`;
    return problem('error', found, ruleDeletion(rule));
  });
  const problems = [...dropped, ...findRefused(pods, node), ...findDoubled(pods, node)];
  return problems.length ? problems : 'routing drops no packets of containers';
};

/** Programs that ban addresses, such as fail2ban, do it by such routes. */
function findRefused(pods: readonly RoutedPod[], node: NodeView): Problem[] {
  const refusals = (pods.length > 0 && node.refusals?.()) || [];
  return refusals.flatMap(({ kind, dst, table }) => {
    if (table !== RT_TABLE_MAIN) return [];
    const concerned = pods.filter(({ address }) => {
      const ip = findIp(address);
      return ip && cidrContains(dst, ip) && node.routes.longestMatch(ip) < dst.prefix;
    });
    if (concerned.length === 0) return [];
    const route = `${kind} ${renderCidr(dst)}`;
    const found = `the route "${route}" drops packets to ${namePods(concerned, node)}`;
    return problem('error', found, `ip ${dst.ip.family === 6 ? '-6 ' : ''}route del ${route}`);
  });
}

/** Such packets do not leave the node. */
function findDoubled(pods: readonly RoutedPod[], node: NodeView): Problem[] {
  const own = node.devices.flatMap(({ name, addresses = [] }) => addresses.map(text => ({ name, text })));
  return own.flatMap(({ name, text }) => {
    const [address] = text.split('/');
    const those = pods.filter(pod => pod.address === address);
    if (those.length === 0) return [];
    const found = `"${name}" of the node has the address ${address} of ${namePods(those, node)}, and takes packets to it`;
    return problem('error', found, `ip addr del ${text} dev ${asWord(name)}`);
  });
}

/** One about packets from containers to a part of the world only may be meant. */
function concerns({ family, from, to, iif, oif }: Rule, pod: RoutedPod): boolean {
  if (family !== pod.family || (iif !== undefined && iif !== pod.device) || oif !== undefined) return false;
  const address = findIp(pod.address);
  if (address === undefined) return false;
  if (to !== undefined) return cidrContains(to, address) && from === undefined;
  return from === undefined || cidrContains(from, address);
}

// A packet must pass every base chain of a hook, so a rule of ours that accepts it does not outweigh one of others that drops it.

/** Rules of Docker, ufw, firewalld, iptables or the administrator. */
export const foreignRules: Check = node => {
  const { pods, filter } = node;
  if (pods?.length === 0) return 'there are no containers that the node routes for';
  const blind = (why: string) => [
    problem('unexamined', `whether rules of other programs stop packets of containers: ${why}`),
  ];
  if (pods === undefined || filter === undefined) return blind('it is not known which containers there are');
  let tables: readonly FilterTable[];
  try {
    tables = filter();
  } catch (error) {
    return blind((error as Error).message);
  }
  const groups = groupBy(findFates(tables, pods, node), kindOf);
  const unfollowed = findUnfollowed(tables, pods, node);
  if (groups.size + unfollowed.length === 0) return 'no rule of another program stops packets of containers';
  return [...[...groups.values()].map(group => describe(group, tables, node)), ...unfollowed];
};

/** Chains of others that drop something at devices of containers themselves, or of ARP: no packet is followed through those. */
function findUnfollowed(
  tables: readonly FilterTable[],
  pods: readonly RoutedPod[],
  node: NodeView,
): Problem[] {
  return tables.flatMap(({ table, isOwn, chains, rules }) => {
    const areDropping = (name: string) => rules.get(name)?.some(isDrop);
    const concernedBy = ({ base, devices }: Chain) =>
      table.family === 'arp' && base
        ? pods.filter(({ family }) => family === 4)
        : pods.filter(({ device, port }) => [device, port].some(one => devices?.includes(one ?? '')));
    const concerned = chains.filter(chain => chain.drops || areDropping(chain.name)).flatMap(concernedBy);
    if (isOwn || concerned.length === 0) return [];
    const name = `${table.family} ${table.name}`;
    const found = `table ${name} may drop what ${namePods(concerned, node)} sends or gets, before all other rules`;
    return [problem('warning', found, `nft list table ${inNft(table)}`)];
  });
}

function isDrop({ expressions }: FilterRule): boolean {
  return expressions.some(({ name, data }) => {
    const { verdict } = (name === 'immediate' && (data as { data?: { verdict?: Verdict } }).data) || {};
    return verdict !== undefined && (verdict.code ?? NF_DROP) === NF_DROP;
  });
}

/** What one rule drops is told at once; translations differ in the port and in where they lead. */
function kindOf(fate: PodFate): string {
  const { what, port, to, isSure } = fate;
  const which = what === 'translate' ? `${port} ${to}` : '';
  return `${placeOf(fate)} ${isSure} ${which}`;
}

/** Ports that are named. */
const MOST_PORTS = 3;

/** `port 80/tcp`, `ports 80/tcp, 81/tcp, 82/tcp and 7 more`. */
function namePorts(group: readonly PodFate[]): string {
  const ports = [...new Set(group.flatMap(({ port }) => port ?? []))];
  return `port${ports.length === 1 ? '' : 's'} ${some(ports, MOST_PORTS)}`;
}

function describe(group: readonly PodFate[], tables: readonly FilterTable[], node: NodeView): Problem {
  const [fate] = group;
  if (fate === undefined) throw new Error('Cannot describe findings: there are none');
  const { isSure, what, port, to } = fate;
  const podsOf = (fates: readonly PodFate[]) => {
    const pods = fates.map(({ pod }) => pod);
    return namePods(pods, node);
  };
  const verb = (sure: string, unsure: string) => (isSure ? sure : `may ${unsure}`);
  const out = group.filter(one => one.port === undefined);
  const into = group.filter(one => one.port !== undefined);
  const led = out.length && podsOf(out) === podsOf(into) ? '' : ` to ${podsOf(into)}`;
  const dropped = [
    ...(out.length ? [`of ${podsOf(out)} to the outside`] : []),
    ...(into.length ? [`through ${namePorts(into)} of the host${led}`] : []),
  ];
  const deed =
    what === 'translate'
      ? `${verb('leads', 'lead')} port ${port} of the host to ${to ?? 'another port or address'} instead of ${podsOf(group)}`
      : `${verb('drops', 'drop')} connections ${dropped.join(', and ')}`;
  return problem(isSure ? 'error' : 'warning', `${placeOf(fate)} ${deed}`, mendFor(group, fate, tables));
}

function placeOf({ table, chain, handle, what }: PodFate): string {
  const where = `chain "${chain}" of table ${table.family} ${table.name}`;
  if (handle !== undefined) return `the rule with handle ${handle} in ${where}`;
  return what === 'drop' ? `the policy of ${where}` : where;
}

function mendFor(group: readonly PodFate[], fate: PodFate, tables: readonly FilterTable[]): string {
  const { table, base, chain, handle, isSure, what } = fate;
  const remove = ruleRemoval(fate);
  const accept = `nft ${asWord(`chain ${inNft(table, chain)} { policy accept; }`)}`;
  if (what === 'translate') return `${remove}  # or map another port`;
  const own = tables.find(one => one.table.family === table.family && one.table.name === table.name);
  const isForward = own?.chains.find(one => one.name === base)?.base?.hook === 'forward';
  // Before the port is translated, no rule about the container's device can accept.
  if (isSure && !isForward) return handle === undefined ? accept : remove;
  if (!isSure || !isForward) return `nft -a list chain ${inNft(table, chain)}`;
  return acceptDevices(fate, own?.chains ?? [], [...new Set(group.map(({ pod }) => pod.device))]);
}
