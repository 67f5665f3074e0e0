// What does `catena ipam` do?
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { listAttachments } from '../../attachments/store.ts';
import { type Conflist, parseNetwork } from '../../chain/config/conflist.ts';
import { listNetworks, loadFile, loadNetwork } from '../../chain/config/load.ts';
import { cacheDirOf } from '../../cni/directories.ts';
import { parseNetworkName } from '../../cni/env.ts';
import { attempt, invalidConfig, tryAgainLater } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { inventoriesOf, leaseDirsOf, loadAbouts, notesLeases, typesOf } from '../../cni/plugin-about.ts';
import { isDirectory } from '../../files/read-file.ts';
import { findOnRecord, findUse } from '../../ipam/holders.ts';
import { DEFAULT_DATA_DIR, listLeases, type Owner } from '../../ipam/lease-files.ts';
import { withStore } from '../../ipam/lease-store.ts';
import { type InspectedLease, inspectLease, type Witnesses } from '../../ipam/lease-use.ts';
import { count, renderTable } from '../../lab/words.ts';
import { findIp, parseIp, renderIp } from '../../net/ip.ts';
import { readStorageNames, titleOfId } from '../../node/names.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, refuseOptions, UsageError } from '../command.ts';
import { findList } from '../named-list.ts';
import { printAnswer, printList } from '../output/print.ts';
import { confDirOf } from '../target.ts';
import { widthOf } from '../terminal/lines.ts';

type Operands = readonly string[];

const ACTIONS: Readonly<Record<string, (call: CommandCall, operands: Operands) => Promise<number>>> = {
  ls,
  why,
  free,
  pools,
};

/** Lists leases, explains why one is held, or frees one; or lists pools. */
export async function run(call: CommandCall): Promise<number> {
  const [name = '', ...operands] = call.positionals;
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (action === undefined)
    throw new UsageError(`Cannot run "ipam ${name}": there are ls, why, free and pools`);
  const isOfAll = action === ls || action === pools;
  const wanted = isOfAll ? [0, 1] : [2];
  if (!wanted.includes(operands.length)) {
    throw new UsageError(
      `Cannot run "ipam ${name}" with ${operands.length} more arguments: it takes ${isOfAll ? '[<network>]' : '<network> <address>'}`,
    );
  }
  if (action !== free) refuseOptions(call, `with "ipam ${name}"`, 'force', 'dry-run');
  return action(call, operands);
}

async function ls(call: CommandCall, [network]: Operands): Promise<number> {
  const places = network === undefined ? listPlaces(call) : [await placeOf(call, network)];
  const leases = places.flatMap(place => inspectAll(call, place));
  await printList(call, 'LeaseList', leases.map(toJson), {
    text: () => renderLeases(leases, widthOf(call)),
    wide: () => renderLeases(leases, undefined, true),
    names: () => leases.map(({ address }) => address),
  });
  return 0;
}

/** What the store of the cluster says, not this node. */
async function pools(call: CommandCall, [network]: Operands): Promise<number> {
  const items = await findPools(call, network);
  await printList(call, 'ClusterPoolList', items, {
    text: () => renderPools(items, widthOf(call)),
    wide: () => renderPools(items, undefined, true),
    names: () => items.map(({ pool }) => pool),
  });
  return 0;
}

async function why(call: CommandCall, operands: Operands): Promise<number> {
  const found = await find(call, operands);
  await printAnswer(call, 'Lease', toJson(found), {
    text: () => renderReason(found),
    names: () => [found.address],
  });
  return 0;
}

async function free(call: CommandCall, operands: Operands): Promise<number> {
  const found = await find(call, operands);
  const { network, dir, address, owner, state, evidence } = found;
  await refuseNote(call, found);
  if (state !== 'unused' && !call.on('force')) {
    throw tryAgainLater(`Cannot free ${address} of network "${network}": it is ${WORDS[state]}`, {
      details: `${evidence.join('; ')}; --force frees it anyway`,
    });
  }
  if (call.on('dry-run')) {
    await printAnswer(call, 'Lease', toJson(found), () => `${renderReason(found)}it would be freed\n`);
    return 0;
  }
  withStore(dir, { reclaim: false }, store => {
    // If the address has a new owner since we looked, that owner keeps it.
    const holder = store.findOwner(address);
    if (JSON.stringify(holder) === JSON.stringify(owner)) store.release([address]);
    else throw tryAgainLater(`Cannot free ${address}: it has just got another holder`);
  });
  return 0;
}

/**
 * Refuses to free what is not free then: without its note, the address would be in the cluster's pool for ever.
 * @throws CniError 7
 */
async function refuseNote(call: CommandCall, { network, address }: FoundLease): Promise<void> {
  const list = findListOnDisk(call, network) ?? findListOnRecord(call, network);
  if (list === undefined || !notesLeases(list, await loadAbouts(call.plugins.find, typesOf(list)))) return;
  throw invalidConfig(
    `Cannot free ${address} of network "${network}": a pool of the cluster has it, and the lease is a note of that`,
    {
      details: `"catena gc --gone ${network}" frees what outlived its container in both, GC what the runtime does not list`,
    },
  );
}

const WORDS = {
  live: 'in use',
  new: 'new, an ADD may be running',
  unknown: 'possibly in use',
} as const;

async function find(call: CommandCall, [network = '', text = '']: Operands): Promise<FoundLease> {
  const ip = findIp(text);
  if (ip === undefined) throw new UsageError(`Cannot look for "${text}": it is not an address`);
  const place = await placeOf(call, network);
  const lease = inspectLease(place.dir, renderIp(ip), findWitnesses(call, network));
  if (lease) return { ...place, ...lease };
  throw invalidConfig(`Cannot find ${renderIp(ip)} in "${place.dir}": it is not leased`);
}

function inspectAll(call: CommandCall, place: LeasePlace): FoundLease[] {
  const witnesses = findWitnesses(call, place.network);
  return listLeases(place.dir)
    .map(parseIp)
    .sort((a, b) => a.family - b.family || (a.value < b.value ? -1 : 1))
    .flatMap(ip => {
      const lease = inspectLease(place.dir, renderIp(ip), witnesses);
      return lease ? { ...place, ...lease } : [];
    });
}

interface LeasePlace {
  readonly network: string;
  readonly dir: string;
}

/**
 * Where the network keeps its leases: in `--data-dir`, else where its conflist says, else in the default directory.
 * @throws CniError 7 for what is no name, and if nothing was ever leased there
 */
async function placeOf(call: CommandCall, network: string): Promise<LeasePlace> {
  parseNetworkName(network);
  const dataDir = call.text('data-dir');
  const configured = dataDir === undefined ? await findLeaseDir(call, network) : undefined;
  const dir = configured ?? join(dataDir ?? DEFAULT_DATA_DIR, network);
  if (existsSync(dir)) return { network, dir };
  throw invalidConfig(`Cannot find leases of network "${network}": "${dir}" does not exist`);
}

/** Every network with leases in `--data-dir` or in the default directory. */
function listPlaces(call: CommandCall): LeasePlace[] {
  const dataDir = call.text('data-dir') ?? DEFAULT_DATA_DIR;
  if (!existsSync(dataDir)) return [];
  return readdirSync(dataDir)
    .sort()
    .map(network => ({ network, dir: join(dataDir, network) }))
    .filter(({ dir }) => isDirectory(dir));
}

/** Lists of attachments and interfaces, read once for all leases. */
function findWitnesses(call: CommandCall, network: string): Witnesses {
  const cacheDir = callersCacheDir(call);
  const { attachments } = listAttachments({ cacheDir }, { network });
  const isOf = (one: Owner, { containerId, ifname = one.ifname }: Owner) =>
    one.containerId === containerId && one.ifname === ifname;
  return {
    findRecord(owner) {
      const netns = findOnRecord(owner, cacheDir);
      return netns === undefined ? attachments.find(one => isOf(one, owner)) : { netns };
    },
    holders: findUse()?.holders,
  };
}

/** A network may have leases although its conflist is gone. */
function findListOnDisk(call: CommandCall, network: string): Conflist | undefined {
  const file = call.text('file');
  if (file !== undefined) return loadFile(file);
  return attempt(() => loadNetwork(confDirOf(call), network));
}

/** Lists of delegates are in no directory. */
function findListOnRecord(call: CommandCall, network: string): Conflist | undefined {
  const { attachments } = listAttachments({ cacheDir: callersCacheDir(call) }, { network });
  const sources = new Set(attachments.map(({ source }) => source));
  return [...sources].flatMap(source => attempt(() => parseNetwork(source)) ?? [])[0];
}

function callersCacheDir(call: CommandCall): string {
  return cacheDirOf({ cacheDir: call.text('cni-cache-dir'), env: call.env });
}

async function findLeaseDir(call: CommandCall, network: string): Promise<string | undefined> {
  const list = findListOnDisk(call, network);
  return list && leaseDirsOf(list, await loadAbouts(call.plugins.find, typesOf(list)))[0];
}

/**
 * Asks the stores of one network, or of all that are configured.
 * @throws CniError 11 when a store cannot be reached, 7 when the network has no pool of a cluster
 */
async function findPools(
  call: CommandCall,
  network: string | undefined,
): Promise<AnswerOf<'ClusterPoolList'>['items']> {
  const file = call.text('file');
  const named = file ?? network;
  const lists =
    named === undefined
      ? listNetworks(confDirOf(call)).networks.map(({ list }) => list)
      : [findList(call, named).list];
  const items: AnswerOf<'ClusterPoolList'>['items'][number][] = [];
  for (const list of lists) {
    const about = await loadAbouts(call.plugins.find, typesOf(list));
    for (const inventory of await inventoriesOf(list, about))
      items.push({ network: list.name, ...inventory });
  }
  if (named === undefined || items.length) return items;
  throw invalidConfig(
    `Cannot list pools of network "${lists[0]?.name ?? named}": its addresses are this node's own, not a cluster's`,
  );
}

type FoundLease = InspectedLease & LeasePlace;

const STATES: Readonly<Record<InspectedLease['state'], string>> = {
  live: 'live: the address is in use',
  new: 'new: written less than a minute ago, an ADD may be running',
  unused: 'unused: its owner no longer exists',
  unknown: 'unknown: nothing shows whether it is in use',
};

/** A table of leases, with the number of leases in each state. @param wide with the time and the evidence */
function renderLeases(leases: readonly FoundLease[], width?: number, wide = false): string {
  const storage = readStorageNames();
  const rows = leases.map(({ network, address, owner, state, writtenAt, evidence }) => [
    network,
    address,
    owner === undefined ? '-' : titleOfId(owner.containerId, storage),
    owner?.ifname ?? '-',
    state,
    ...(wide ? [writtenAt.toISOString(), evidence.join('; ')] : []),
  ]);
  const head = ['NETWORK', 'ADDRESS', 'CONTAINER', 'INTERFACE', 'STATE'];
  const table = [[...head, ...(wide ? ['WRITTEN', 'EVIDENCE'] : [])], ...rows];
  const counts = Object.keys(STATES).flatMap(state => {
    const number = leases.filter(lease => lease.state === state).length;
    return number ? `${number} ${state}` : [];
  });
  return `${renderTable(table, width)}\n${count(leases.length, 'lease')}${counts.length ? `: ${counts.join(', ')}` : ''}\n`;
}

/** A table of pools. @param wide with a line for each node that holds blocks */
function renderPools(pools: AnswerOf<'ClusterPoolList'>['items'], width?: number, wide = false): string {
  const rows = pools.flatMap(({ network, pool, blockSize, blocks, claimed, nodes }) => {
    const share = blocks > 0 ? `${Math.round((100 * claimed) / blocks)} %` : '-';
    const own = [network, pool, `${blocks}`, `${blockSize}`, `${claimed}`, share, `${nodes.length}`];
    if (!wide) return [own];
    const held = nodes.map(one => {
      const notes = [one.orphaned && `${one.orphaned} orphaned`, one.kept && `${one.kept} kept`];
      return ['', '', '', '', `${one.blocks}`, notes.filter(Boolean).join(', '), one.node];
    });
    return [own, ...held];
  });
  const head = ['NETWORK', 'POOL', 'BLOCKS', 'BLOCK SIZE', 'CLAIMED', 'SHARE', 'NODES'];
  return renderTable([head, ...rows], width);
}

/** Everything known about one lease, the conclusion last. */
function renderReason({ network, address, owner, state, evidence }: FoundLease): string {
  const holder = owner
    ? `container "${titleOfId(owner.containerId)}"${owner.ifname ? `, interface "${owner.ifname}"` : ''}`
    : 'an unknown owner (the lease does not name one)';
  return [
    `${address} of network "${network}" is leased to ${holder}`,
    ...evidence.map(line => `- ${line}`),
    STATES[state],
    '',
  ].join('\n');
}

function toJson({ network, address, owner, state, evidence, writtenAt }: FoundLease): AnswerOf<'Lease'> {
  return {
    network,
    address,
    ...defined({ containerId: owner?.containerId, ifname: owner?.ifname || undefined }),
    state,
    evidence,
    writtenAt: writtenAt.toISOString(),
  };
}
