// What changed on this node, by whom and when, from everything that keeps a time?
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { listLeases, readLease } from '../../ipam/lease-files.ts';
import { parseOwner } from '../../ipam/owner.ts';
import type { NodeModel } from '../../node/model.ts';
import { type HistoryEvent, readHistory } from '../../observe/history.ts';

/** Something that happened. */
export interface LogEntry {
  /** ISO time. */
  readonly time: string;
  /** A verb of the history; `LEASE`: an address was leased, and nothing else is known. */
  readonly what: string;
  readonly network?: string;
  readonly containerId?: string;
  readonly ifname?: string;
  readonly podNamespace?: string;
  readonly podName?: string;
  /** Which program did it, as far as known. */
  readonly by: string;
  /** 0 for success, else an error code of the protocol. */
  readonly code: number;
  readonly message?: string;
  /** Where that is known from: `history`, `record` or `cached result`, `lease`. */
  readonly source: string;
  /** Id of its trace (`catena log <id>`). */
  readonly trace?: string;
}

/** Two reports of one operation differ by its duration, at most by that of the slowest plugin. */
const SAME_MS = 60_000;

/** Where the time line comes from. */
export interface LogSources {
  readonly node: NodeModel;
  readonly stateDir: string;
}

/**
 * Everything on this node that has a time, oldest first. The history comes first: what another source says of the same operation is left
 * out.
 */
export function readTimeline({ node, stateDir }: LogSources): LogEntry[] {
  const history = byChain(readHistory(stateDir).map(fromHistory));
  const entries = [...history];
  for (const one of [...fromRecords(node), ...fromLeases(node)]) {
    if (!entries.some(other => isSame(one, other))) entries.push(one);
  }
  return withPods(entries, node).sort((a, b) => Date.parse(a.time) - Date.parse(b.time));
}

type PodName = Pick<LogEntry, 'podNamespace' | 'podName'>;

/** A repair knows the id of a container only; an attachment, or another entry, its pod. */
function withPods(entries: readonly LogEntry[], { attachments }: NodeModel): LogEntry[] {
  const pods = new Map<string, PodName>();
  for (const { containerId, podNamespace, podName } of [...entries, ...attachments]) {
    if (containerId !== undefined && podName !== undefined)
      pods.set(containerId, { podName, ...(podNamespace === undefined ? {} : { podNamespace }) });
  }
  return entries.map(one => ({ ...pods.get(one.containerId ?? ''), ...one }));
}

/** An event of the history as an entry. */
export function fromHistory({ verb, plugin, by, ...event }: HistoryEvent): LogEntry {
  const who = plugin === undefined ? by : `${by}, ${plugin}`;
  return { ...event, what: verb, by: who, source: 'history' };
}

/** An attachment that exists was added, by one runtime or another. */
function fromRecords({ attachments }: NodeModel): LogEntry[] {
  return attachments.flatMap((one): LogEntry[] => {
    const { network, containerId, ifname, podNamespace, podName, since, origin } = one;
    if (since === undefined) return [];
    const source = origin.evidence.startsWith('record') ? 'record' : 'cached result';
    const pod =
      podName === undefined ? {} : { podName, ...(podNamespace === undefined ? {} : { podNamespace }) };
    return [
      { time: since, what: 'ADD', network, containerId, ifname, ...pod, by: origin.runner, code: 0, source },
    ];
  });
}

function fromLeases({ networks }: NodeModel): LogEntry[] {
  return networks.flatMap(({ name, leaseDirs }) =>
    leaseDirs.filter(existsSync).flatMap(dir =>
      listLeases(dir).flatMap((address): LogEntry[] => {
        const owner = parseOwner(readLease(dir, address) ?? '');
        const written = statSync(join(dir, address), { throwIfNoEntry: false });
        if (owner === undefined || written === undefined) return [];
        const { containerId, ifname } = owner;
        return [
          {
            time: written.mtime.toISOString(),
            what: 'LEASE',
            network: name,
            containerId,
            ...(ifname === undefined ? {} : { ifname }),
            by: 'unknown',
            code: 0,
            message: `${address} was leased`,
            source: 'lease',
          },
        ];
      }),
    ),
  );
}

/** Calls of one chain follow each other within this time. */
const CHAIN_MS = 30_000;

/** A runtime calls the plugins of a chain one by one: they are one operation, with the outcome of the first that failed. */
function byChain(entries: readonly LogEntry[]): LogEntry[] {
  const open = new Map<string, LogEntry>();
  const joined: LogEntry[] = [];
  for (const one of entries) {
    const { by, what, network, containerId, ifname, time } = one;
    const [who = '', plugin] = by.split(', ');
    const key = [what, network, containerId, ifname].join('\n');
    const before = plugin === undefined ? undefined : open.get(key);
    const plugins = before?.by.split(', ').slice(1) ?? [];
    const isNext =
      before && plugin && !plugins.includes(plugin) && Date.parse(time) - Date.parse(before.time) < CHAIN_MS;
    if (!isNext) {
      if (plugin !== undefined) open.set(key, one);
      joined.push(one);
      continue;
    }
    const failed = [before, one].find(({ code }) => code !== 0);
    const whole = { ...one, ...failed, time, by: [who, ...plugins, plugin].join(', ') };
    joined[joined.indexOf(before)] = whole;
    open.set(key, whole);
  }
  return joined;
}

/** Whether both are about one ADD: a lease and a record are, too. */
function isSame(one: LogEntry, other: LogEntry): boolean {
  return (
    other.what === 'ADD' &&
    one.network === other.network &&
    one.containerId === other.containerId &&
    (one.ifname === undefined || one.ifname === other.ifname) &&
    Math.abs(Date.parse(one.time) - Date.parse(other.time)) < SAME_MS
  );
}
