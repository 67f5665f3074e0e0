// What can be observed of one twin, by keys that do not depend on the order of things?

import fs from 'node:fs';
import path from 'node:path';
import type { Dump } from '../helpers/dump.ts';
import type { Lab, Namespace, Row } from '../helpers/netns.ts';
import { requiresVlanFiltering } from '../helpers/skip.ts';

/** State by kind, then by name: `interface/br0/link/mtu`. */
export type Observation = Record<string, Record<string, unknown>>;

// Numbers that the kernel assigns in order, identifiers derived from a bridge's hardware address, and a transient state.
const LEFT_OUT = new Set(['ifindex', 'link_index', 'link_netnsid', 'bridge_id', 'root_id', 'tentative']);

// Packet filter tables of address translation and anti-spoofing: the two sides achieve the same by different means, so probes
// compare the effect.
const OTHER_MEANS = /^(ip|ip6) (nat|mangle)$|^bridge nat$|^(inet|bridge) catena_/;

/** Everything about a namespace; what belongs to an interface is stored with it, so that it is missing as a whole. */
export async function observeNamespace(
  lab: Lab,
  ns: Namespace,
  wholePacketFilter: boolean,
): Promise<Observation> {
  const dump = await settledDump(lab, ns);
  const sysctls = await sysctlsOf(lab, ns);
  const vlans = await vlansOf(lab, ns);
  const interfaces = dump.links.map(link => {
    const { ifname } = link;
    const own = (row: Row): boolean => (row.dev ?? row.ifname) === ifname;
    const steady = link.linkinfo?.info_kind === 'bridge' ? withoutCarrier : (rows: Row[]) => rows;
    return [
      ifname,
      {
        link: steady([link])[0],
        address: byKey(
          dump.addresses.find(own)?.addr_info,
          ({ local, prefixlen }) => `${local}/${prefixlen}`,
        ),
        route: byKey(steady(dump.routes.filter(own)), nameOfRoute),
        qdisc: byKey(dump.qdiscs.filter(own), qdisc => qdisc.kind),
        filter: byKey(dump.filters.filter(own), filter => filter.kind ?? ''),
        vlan: vlans.get(ifname),
        sysctl: sysctls.get(ifname),
      },
    ];
  });
  const seen: Observation = {
    interface: Object.fromEntries(interfaces),
    route: byKey(
      dump.routes.filter(route => route.dev === undefined),
      nameOfRoute,
    ),
    rule: byKey(dump.rules, rule => `${rule.priority} ${rule.src} ${rule.table}`),
    nft: packetFilter(dump, wholePacketFilter),
    sysctl: sysctls.get('') ?? {},
  };
  return JSON.parse(JSON.stringify(seen, simplify));
}

/** What every ADD and GC of ours leave for each other in the run directory, and for a person to read, is nothing that the reference has. */
const NOTES = /(^|\/)(generations|gc|history)\//;

/** Every file below a directory with its content; lock files have none that matters. */
export function observeFiles(dir: string): Record<string, string> {
  if (!fs.existsSync(dir)) return {};
  const names = fs.readdirSync(dir, { recursive: true, encoding: 'utf8' }).sort();
  const files = names.filter(name => !NOTES.test(name) && fs.lstatSync(path.join(dir, name)).isFile());
  return Object.fromEntries(files.map(name => [name, fs.readFileSync(path.join(dir, name), 'utf8')]));
}

/** VLANs of each port of a bridge, and of bridges themselves, with their flags. */
async function vlansOf(lab: Lab, ns: Namespace): Promise<Map<string, Row>> {
  if (requiresVlanFiltering() !== undefined) return new Map();
  const { stdout } = await lab.run(ns, ['bridge', '-j', 'vlan', 'show']);
  const ports: Row[] = stdout.trim() === '' ? [] : JSON.parse(stdout);
  return new Map(ports.map(({ ifname, vlans }) => [ifname, byKey(vlans, ({ vlan }) => `${vlan}`)]));
}

/**
 * Some states settle quickly (see ground.ts for addresses), but not before ADD returns; and the kernel's dump of IPv6 routes repeats
 * rows or leaves some out while it adds others, so they have to be the same before and after.
 */
async function settledDump(lab: Lab, ns: Namespace): Promise<Dump> {
  const routes = async () => (await lab.run(ns, ['ip', '-6', 'route', 'show', 'table', 'all'])).stdout;
  for (let attempt = 0, before = await routes(); ; attempt++) {
    const dump = await lab.dump(ns, { waiting: true });
    const waking = dump.links.some(({ flags, operstate, linkinfo }) => {
      const isUp = flags.includes('UP') && flags.includes('LOWER_UP');
      return linkinfo?.info_kind === 'veth' && operstate !== 'UP' && isUp;
    });
    const addresses: Row[] = dump.addresses.flatMap(({ addr_info }) => addr_info ?? []);
    const usable = addresses.filter(({ family, dadfailed }) => family === 'inet6' && !dadfailed);
    const isTentative = usable.some(({ tentative }) => tentative);
    const after = await routes();
    // The kernel ends the detection of duplicates before it adds the route of the address.
    const isRouted = usable.every(({ local }) => after.includes(`local ${local} `));
    if ((!waking && !isTentative && isRouted && before === after) || attempt === 100) return dump;
    before = after;
    await Bun.sleep(20);
  }
}

/** Flags have no order, so they are compared by name. */
function simplify(key: string, value: unknown): unknown {
  if (LEFT_OUT.has(key)) return undefined;
  if (key !== 'flags' || !Array.isArray(value)) return value;
  return Object.fromEntries(value.map(flag => [flag, true]));
}

/** The carrier of a bridge follows its ports up to a second later, so either value would be right. */
function withoutCarrier(rows: readonly Row[]): Row[] {
  const late = ['NO-CARRIER', 'LOWER_UP', 'linkdown'];
  return rows.map(({ operstate, ...row }) => ({
    ...row,
    flags: row.flags.filter((flag: string) => !late.includes(flag)),
  }));
}

function nameOfRoute({ table, type, dst, gateway, metric }: Row): string {
  return [table, type, dst, gateway && `via ${gateway}`, metric].filter(Boolean).join(' ');
}

function packetFilter(dump: Dump, whole: boolean): Record<string, unknown> {
  const named = dump.nft.map(row => {
    const [kind = '', object] = Object.entries(row)[0] ?? [];
    const table = `${object.family} ${kind === 'table' ? object.name : object.table}`;
    return { table, key: [table, kind, object.chain ?? object.name].join(' '), object };
  });
  const compared = named
    .filter(row => whole || !OTHER_MEANS.test(row.table))
    .filter(({ key, object }) => !isLoopbackRule(key, object));
  return byKey(compared, row => row.key);
}

/** The reference leads the ports of ::1 to pods, which cannot answer; ours leaves them to the host with a rule more. */
function isLoopbackRule(key: string, { expr }: Row): boolean {
  return key.startsWith('ip6 nat rule CNI-DN-') && expr?.[0]?.match?.right === '::1';
}

/** Keys and values by the interface that they are about; by the empty string when it is none. */
async function sysctlsOf(lab: Lab, ns: Namespace): Promise<Map<string, Record<string, string>>> {
  const { stdout } = await lab.run(ns, ['grep', '-rs', '', '/proc/sys/net']);
  const sysctls = new Map<string, Record<string, string>>();
  for (const line of stdout.split('\n')) {
    const [, key = '', value = ''] = /^\/proc\/sys\/net\/([^:]+):(.*)$/.exec(line) ?? [];
    if (key === '' || VOLATILE_SYSCTL.test(key)) continue;
    const [, family, name = '', rest] = /^(ipv[46]\/(?:conf|neigh))\/([^/]+)(\/.*)$/.exec(key) ?? [];
    const owner = ['all', 'default'].includes(name) ? '' : name;
    const about = sysctls.get(owner) ?? {};
    about[owner === '' ? key : `${family}${rest}`] = value;
    sysctls.set(owner, about);
  }
  return sysctls;
}

const VOLATILE_SYSCTL = /^netfilter\/nf_conntrack_count$|_usage$/;

/** An object of rows; rows with equal keys are numbered. */
function byKey(rows: readonly Row[] = [], keyOf: (row: Row) => string): Record<string, unknown> {
  const all: Record<string, unknown> = {};
  for (const row of rows) {
    const key = keyOf(row);
    let unique = key;
    for (let n = 2; unique in all; n++) unique = `${key} #${n}`;
    all[unique] = row;
  }
  return all;
}
