// How is the model of this node read, in one pass and at a bounded cost?

import { hostname } from 'node:os';
import { findGeneration } from '../attachments/generation.ts';
import { addedAt, type KnownAttachment } from '../attachments/store.ts';
import { type Conflist, parseFrozen } from '../chain/config/conflist.ts';
import type { LoadedNetworks } from '../chain/config/load.ts';
import { buildRequest } from '../chain/run/call-plugins.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import type { SegmentRunner } from '../chain/run/segment.ts';
import { keyOf, renderOwner } from '../cni/attachment.ts';
import { runDir } from '../cni/directories.ts';
import { attempt } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { devicesOf, type FindAbout, leaseDirsOf, type PluginEffects } from '../cni/plugin-about.ts';
import { addressesTold } from '../cni/result.ts';
import { isOfEarlierBoot } from '../files/process-stat.ts';
import { rangeUsesOf } from '../ipam/range-use.ts';
import { ALIAS_MAX_BYTES } from '../netlink/rtnl/link.ts';
import { CHECK_BUDGET_MS, checkAll } from '../watch/examine.ts';
import { bridgesIn, type Inside, readHost, readInside } from './devices.ts';
import type { NodeFacts, RecordedAttachment } from './facts.ts';
import type { NodeAttachment, NodeDaemon, NodeHealth, NodeModel, NodeNetwork, NodeOrigin } from './model.ts';
import { namesOf, readStorageNames } from './names.ts';
import { titleOf } from './words.ts';

/**
 * Who made it: by our record if that is of this ADD, else by the path of the namespace, which runtimes choose differently. A cached result
 * names no program, so that is a conclusion and not knowledge.
 */
export function originOf(one: KnownAttachment): NodeOrigin {
  const { netns, args } = one;
  const executables = [...one.executables];
  if (one.stateDir !== undefined) {
    const runner = one.owner || 'a program of this library';
    return { runner, executables, evidence: `record "${one.file}"` };
  }
  const [runner] = RUNTIMES.find(([, path]) => path.test(netns)) ?? [];
  if (runner !== undefined) return { runner, executables, evidence: `its namespace is "${netns}"` };
  const isPod = args.some(([key, value]) => key === 'K8S_POD_NAMESPACE' && value !== '');
  const evidence = isPod ? 'the arguments of its ADD name a pod' : 'only the cached result is known';
  return { runner: 'another runtime', executables, evidence };
}

/** Where runtimes put namespaces: containerd's go-cni and ocicni, podman, docker. */
const RUNTIMES: readonly (readonly [string, RegExp])[] = [
  ['podman', /\/netns\/netns-[\da-f-]{36}$/],
  ['containerd', /\/netns\/cni-[\da-f-]{36}$/],
  ['docker', /\/docker\/netns\//],
  ['CRI-O', /\/netns\/[\da-f-]{36}$/],
];

/** ISO time of its ADD: by our record or the note of its ADD, else by the date of its cached result, which `catena set` writes again. */
export function sinceOf(one: KnownAttachment, env: ChainRuntime['env']): string | undefined {
  const note = one.stateDir === undefined ? findGeneration(runDir(env), one) : undefined;
  const time = note && !isOfEarlierBoot(note, env) ? note.time : addedAt(one);
  return time === undefined ? undefined : new Date(time).toISOString();
}

interface NodePlaces {
  readonly facts: NodeFacts;
  readonly runtime: ChainRuntime;
  readonly findAbout: FindAbout;
  readonly daemon: NodeDaemon;
  readonly version: string;
  /** Runs CHECK of every attachment. */
  readonly health?: boolean;
  /** For CHECK: makes what runs one chain at a time; otherwise each plugin has a process. */
  readonly openSegments?: () => SegmentRunner;
}

/** For reading namespaces; the rest is noted as unread. One takes less than a millisecond, so this is for a node that hangs. */
const NAMESPACES_MS = 5_000;

/**
 * Reads files, then the host's devices, then each namespace. Without rights to enter namespaces, attachments lack what is in them.
 * @throws CniError 5 if records or configurations cannot be listed
 */
export async function readNode(places: NodePlaces): Promise<NodeModel> {
  const { facts, runtime, findAbout, daemon, version } = places;
  const time = new Date().toISOString();
  const { networks, diagnostics } = facts.networks();
  const { attachments, damaged } = facts.attachments();
  const notes = [...diagnostics.map(({ error }) => error), ...damaged].map(({ message }) => message);
  const host = readHost(facts.kernel);
  const insides = readNamespaces(attachments, notes);
  const health = places.health ? await readHealth(places) : new Map<string, NodeHealth>();
  const storage = readStorageNames();
  const shown = attachments.map((one): NodeAttachment => {
    const { network, containerId, ifname, netns, through, unsettled } = one;
    const inside = insides.get(netns)?.get(ifname);
    const hostDevice =
      inside?.hostIndex === undefined
        ? host.owned.get(renderOwner(one, ALIAS_MAX_BYTES))
        : host.byIndex.get(inside.hostIndex);
    return {
      network,
      containerId,
      ifname,
      ...namesOf(one, storage),
      state: unsettled !== undefined ? 'unsettled' : one.isGone ? 'gone' : 'attached',
      netns,
      origin: originOf(one),
      addresses: addressesTold(one.result),
      ...effectsOf(one, findAbout),
      routes: [...(inside?.routes ?? [])],
      ...defined({ why: unsettled, since: sinceOf(one, runtime.env), through }),
      ...defined({ device: inside?.device, hostDevice, health: health.get(keyOf(one)) }),
    };
  });
  const lists = listsOf(networks, attachments);
  const masters = shown.flatMap(({ hostDevice }) => [hostDevice?.master, hostDevice?.name]);
  const made = [...lists.values()].flatMap(list => devicesOf(list, findAbout).map(({ name }) => name));
  const names = new Set([...masters, ...made].filter(name => name !== undefined));
  // As it is shown first, then by network and interface.
  const keyed = (one: NodeAttachment) => [titleOf(one), keyOf(one)].join('\0');
  return {
    time,
    hostname: hostname(),
    version,
    networks: networksOf(networks, lists, shown, findAbout),
    attachments: shown.sort((a, b) => (keyed(a) < keyed(b) ? -1 : 1)),
    bridges: bridgesIn(host, names),
    pools: [...lists.values()].flatMap(list => rangeUsesOf(list, findAbout)),
    daemon,
    notes,
  };
}

function readNamespaces(
  attachments: readonly RecordedAttachment[],
  notes: string[],
): ReadonlyMap<string, ReadonlyMap<string, Inside>> {
  const deadline = performance.now() + NAMESPACES_MS;
  const paths = [...new Set(attachments.filter(one => !one.isGone).map(({ netns }) => netns))];
  const read = new Map<string, ReadonlyMap<string, Inside>>();
  for (const [i, path] of paths.entries()) {
    if (performance.now() > deadline) {
      const left = `${paths.length - i} of ${paths.length} namespaces`;
      notes.push(`Cannot read ${left}: ${NAMESPACES_MS} ms have passed`);
      break;
    }
    const inside = readInside(path);
    if (inside !== undefined) read.set(path, inside);
  }
  return read;
}

async function readHealth({ facts, runtime, openSegments }: NodePlaces): Promise<Map<string, NodeHealth>> {
  const scope = { budgetMs: CHECK_BUDGET_MS, openSegments };
  const checks = await checkAll(facts.attachments().standing, runtime, scope);
  return new Map(checks.map(one => [keyOf(one), { state: one.state, ...defined({ problem: one.problem }) }]));
}

type Effects = Pick<NodeAttachment, 'ports' | 'rates' | 'policies'>;

/**
 * Asks what is known about each plugin of the list as it was at ADD, with the requests that it got. Nothing is executed, so a plugin that
 * is unknown here contributes nothing. The same goes for a configuration that its plugin refuses.
 */
function effectsOf(known: KnownAttachment, find: FindAbout): Effects {
  const { source, capabilityArgs } = known;
  const list = findFrozen(source);
  const requests = attempt(() => list?.plugins.map(entry => buildRequest(list, entry, { capabilityArgs })));
  const all = (requests ?? []).flatMap(request => {
    const about = find(String(request.type));
    return attempt(() => about?.effectsOf?.(request)) ?? [];
  });
  return {
    ports: all.flatMap(({ ports = [] }) => ports.map(toPort)),
    rates: Object.assign({}, ...all.map(({ rates }) => rates)),
    policies: all.flatMap(({ policies = [] }) => policies),
  };
}

/** A list that cannot be parsed tells nothing. */
function findFrozen(source: string): Conflist | undefined {
  return source === '' ? undefined : attempt(() => parseFrozen(source));
}

function toPort({ hostIP, hostPort, containerPort, protocol }: NonNullable<PluginEffects['ports']>[number]) {
  const carried = (protocol || 'tcp').toLowerCase();
  return { hostPort, containerPort, protocol: carried, ...defined({ hostIP: hostIP || undefined }) };
}

/** The list of each network, by name: as configured, else as an attachment had it. */
function listsOf(
  networks: LoadedNetworks['networks'],
  attachments: readonly RecordedAttachment[],
): ReadonlyMap<string, Conflist> {
  const lists = new Map(networks.map(({ list }) => [list.name, list]));
  for (const { network, source } of attachments) {
    const list = lists.has(network) ? undefined : findFrozen(source);
    if (list) lists.set(network, list);
  }
  return lists;
}

/** The networks that are configured, then those that only attachments know. */
function networksOf(
  networks: LoadedNetworks['networks'],
  lists: ReadonlyMap<string, Conflist>,
  attachments: readonly NodeAttachment[],
  find: FindAbout,
): NodeNetwork[] {
  const counts = new Map<string, number>();
  for (const { network } of attachments) counts.set(network, (counts.get(network) ?? 0) + 1);
  const files = new Map(networks.map(({ file, list }) => [list.name, file]));
  return [...new Set([...files.keys(), ...counts.keys()])].map(name => {
    const [file, list] = [files.get(name), lists.get(name)];
    return {
      name,
      ...defined({ file, cniVersion: list?.version }),
      plugins: list?.plugins.map(({ type }) => type) ?? [],
      leaseDirs: list === undefined ? [] : leaseDirsOf(list, find),
      attachments: counts.get(name) ?? 0,
    };
  });
}
