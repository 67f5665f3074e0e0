// What of ours belongs to no attachment, in files, in the kernel and in iptables, and how is it removed without that of others?

import { lstatSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { AnswerOf } from '../cli/answers/kinds.ts';
import { findOwner } from '../cni/attachment.ts';
import type { SharedChain } from '../cni/plugin-about.ts';
import { namesIn } from '../files/read-file.ts';
import { findUpper } from '../ipam/holders.ts';
import { listLeases } from '../ipam/lease-files.ts';
import { FAMILIES } from '../net/ip.ts';
import { isInstalled, restoreTable, type SavedTable, saveTable } from '../netlink/iptables/program.ts';
import { commit, renderTable } from '../netlink/nft/message.ts';
import { deleteTable } from '../netlink/nft/table.ts';
import { type Link, removeLinks } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE } from '../netlink/socket.ts';
import { isOwnTable, Tables } from '../netlink/tables.ts';
import { holdFlock } from '../sys/flock.ts';

/** Outcome, or plan, for a table, a device, a file or a directory. */
export type PurgeStep = NonNullable<AnswerOf<'Uninstallation'>['purged']>[number];

/** Directories that are ours alone, and those that we share. */
export interface PurgePlaces {
  readonly runDir: string;
  readonly stateDir: string;
  /** Directories of leases, in host-local's format. */
  readonly leaseDirs: readonly string[];
  readonly binDirs: readonly string[];
  /** Directories shared with others, which go if nothing is in them; a directory comes before the one that it is in. */
  readonly shared: readonly string[];
  /** Names of plugins: they have files and directories of these names. */
  readonly types: readonly string[];
}

/** What processes of ours have in the run directory and in the state directory, besides what plugins have. */
const KNOWN = new RegExp(
  `^(${[
    'catena\\.sock.*',
    '(watch|between)\\.lock',
    // Those of plugins name the namespace that they lock in by its inode.
    '[a-z0-9-]+-\\d+(-.*)?\\.lock',
    '\\.catena-.*',
    'between\\.json',
    'boot|caches|delegates|gc|generations|history|locks|pods|running|traces|unsettled|upkeep',
  ].join('|')})$`,
);
const SWAPS = '.catena-swap';
/** Those of host-local; the reference creates them again. */
const OF_THE_NETWORK = /^(last_reserved_ip\..*|lock)$/;
const OWN = /^\.catena-/;

/**
 * Removes what is ours. A directory that has something else in it stays, so that a wrong path does no harm.
 * @param dryRun only look
 */
export function purgeFiles(places: PurgePlaces, dryRun: boolean): PurgeStep[] {
  const { runDir, stateDir, leaseDirs, binDirs, shared, types } = places;
  const remover = new Remover(dryRun);
  const isKnown = (name: string) => KNOWN.test(name) || types.includes(name);
  for (const dir of new Set([runDir, stateDir])) {
    for (const name of namesIn(dir)) {
      if (isKnown(name)) remover.remove(join(dir, name));
      else remover.keep(join(dir, name), 'it is not known to be ours');
    }
    remover.prune(dir);
  }
  for (const dir of leaseDirs) purgeLeases(dir, remover);
  for (const dir of binDirs) if (namesIn(dir).includes(SWAPS)) remover.remove(join(dir, SWAPS));
  for (const dir of new Set(shared)) remover.prune(dir);
  return remover.steps;
}

/** Leases that stand are those of attachments that other plugins delete from now on. */
function purgeLeases(dir: string, remover: Remover): void {
  const names = namesIn(dir);
  // Only the reference has used it.
  if (!names.some(name => OWN.test(name))) return;
  const release = remover.dryRun ? () => {} : holdFlock(join(dir, 'lock'));
  if (release === undefined) {
    remover.keep(dir, 'a process is working in it');
    return;
  }
  try {
    const isFree = listLeases(dir).length === 0;
    for (const name of names)
      if (OWN.test(name) || (isFree && OF_THE_NETWORK.test(name))) remover.remove(join(dir, name));
    remover.prune(dir);
  } finally {
    release();
  }
}

class Remover {
  readonly steps: PurgeStep[] = [];
  readonly dryRun: boolean;
  readonly #gone = new Set<string>();

  constructor(dryRun: boolean) {
    this.dryRun = dryRun;
  }

  remove(path: string): void {
    const isDir = lstatSync(path, { throwIfNoEntry: false })?.isDirectory();
    if (!this.dryRun) rmSync(path, { recursive: true, force: true });
    this.#note(path, isDir ? 'directory' : 'file');
  }

  keep(path: string, why: string): void {
    this.steps.push({ action: 'keep', what: path, why });
  }

  /** Removes a directory if nothing is left in it. */
  prune(dir: string): void {
    if (!lstatSync(dir, { throwIfNoEntry: false })?.isDirectory()) return;
    if (namesIn(dir).some(name => !this.#gone.has(join(dir, name)))) return;
    try {
      if (!this.dryRun) rmdirSync(dir);
    } catch (cause) {
      // Another process has just put something there, or it is a mount point.
      this.keep(dir, (cause as Error).message);
      return;
    }
    this.#note(dir, 'directory');
  }

  #note(path: string, kind: string): void {
    this.#gone.add(path);
    this.steps.push({ action: 'remove', what: `${kind} ${path}` });
  }
}

/**
 * Removes chains that plugins share with the reference's, where only their fixed rules are left in them. The tables of iptables stay.
 * @param dryRun only look
 * @throws Error with the message of the iptables program
 */
export function purgeIptables(shared: readonly SharedChain[], dryRun: boolean): PurgeStep[] {
  const tables = [...new Set(shared.map(({ table }) => table))];
  return FAMILIES.filter(family => isInstalled(`${NAMES[family]}-save`)).flatMap(family =>
    tables.flatMap(table => {
      const names = shared.filter(one => one.table === table).map(one => one.name);
      const saved = saveTable(family, table);
      const there = names.filter(chain => saved.chains.includes(chain));
      const why = findUser(saved, there);
      if (why === undefined && there.length && !dryRun)
        restoreTable(family, table, removalLines(saved, there));
      const action = why === undefined ? ('remove' as const) : ('keep' as const);
      const words = (chain: string) => `chain "${chain}" of ${NAMES[family]} -t ${table}`;
      return there.map(chain => ({ action, what: words(chain), ...(why ? { why } : {}) }));
    }),
  );
}

const NAMES = { 4: 'iptables', 6: 'ip6tables' } as const;

/** A rule of an attachment, or of the operator; one keeps all of the chains, as they lead to each other. */
export function findUser({ rules }: SavedTable, chains: readonly string[]): string | undefined {
  const comment = /( -m comment --comment ("[^"]*"|\S+))?/.source;
  const target = `-j (${[...chains, 'RETURN', 'MARK .*', 'MASQUERADE'].join('|')})`;
  const fixed = new RegExp(`^\\S+${comment}( -m mark --mark \\S+)?${comment} ${target}$`);
  const used = rules.find(rule => chains.includes(rule.split(' ')[0] ?? '') && !fixed.test(rule));
  return used === undefined ? undefined : `it has or serves the rule "${used}"`;
}

/** Jumps first: a chain that is jumped to cannot be deleted. */
export function removalLines({ rules }: SavedTable, chains: readonly string[]): string[] {
  const jumps = rules.filter(rule => {
    const [chain = ''] = rule.split(' ');
    return !chains.includes(chain) && chains.some(name => ` ${rule} `.includes(` -j ${name} `));
  });
  return [
    ...jumps.map(rule => `-D ${rule}`),
    ...chains.map(name => `-F ${name}`),
    ...chains.map(name => `-X ${name}`),
  ];
}

/** The alias of every device of ours begins like this; that of an attachment's device names the attachment. */
const ALIAS_PREFIX = 'catena:';

/** Attachments to which an element of our tables belongs, human-readable, without doubles: their rules would go with the tables. */
export function listElementOwners(): string[] {
  const owners = new Tables().ownElements.map(({ comment }) => findOwner(comment));
  const names = owners.map(owner => owner && `${owner.network} ${owner.containerId} ${owner.ifname}`);
  return [...new Set(names)].filter(name => name !== undefined).sort();
}

/**
 * Removes our tables, with all that is in them, and the devices that we made for networks: bridges without a port of an attachment or
 * another's device on them, their own ports, and the host's macvlans.
 * @param dryRun only look
 * @throws NetlinkError when the kernel refuses
 */
export function purgeKernel(dryRun: boolean): PurgeStep[] {
  const kernel = new Tables();
  const own = kernel.nftTables.filter(isOwnTable);
  if (!dryRun) kernel.ask(NETLINK_NETFILTER, socket => commit(socket, own.map(deleteTable)));
  const judged = judgeDevices(kernel.links);
  const free = judged.filter(({ why }) => why === undefined).map(({ link }) => link.index);
  if (!dryRun) kernel.ask(NETLINK_ROUTE, socket => removeLinks(socket, free));
  const devices = judged.map(({ link, why }): PurgeStep => {
    const what = `device "${link.name}" of kind "${link.kind}"`;
    return why === undefined ? { action: 'remove', what } : { action: 'keep', what, why };
  });
  return [
    ...own.map(table => ({ action: 'remove' as const, what: `table ${renderTable(table)}` })),
    ...devices,
  ];
}

/** Devices of networks, with what an attachment, or another program, has in the bridge or on it. */
function judgeDevices(links: readonly Link[]): { readonly link: Link; readonly why: string | undefined }[] {
  const own = links.filter(({ attrs: { alias } }) => alias?.startsWith(ALIAS_PREFIX) && !findOwner(alias));
  const indexes = new Set(own.map(({ index }) => index));
  const others = links.filter(({ index }) => !indexes.has(index));
  const useOf = (device: number): string | undefined => {
    if (!indexes.has(device)) return undefined;
    const port = others.find(({ master }) => master === device);
    return port ? `"${port.name}" is a port of it` : findUpper(device, others);
  };
  return own.map(link => {
    // Either end of a pair that carries the gateway of a VLAN.
    const ends = [link, ...own.filter(one => one.index === link.peer)];
    const [why] = ends.flatMap(({ index, master }) => useOf(index) ?? useOf(master) ?? []);
    return { link, why };
  });
}
