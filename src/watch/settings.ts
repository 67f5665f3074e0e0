// What may an operator decide about the watch, and what does it report about itself?

import { listNetworks } from '../chain/config/load.ts';
import type { AnswerOf } from '../cli/answers/kinds.ts';
import { attempt } from '../cni/errors.ts';
import { objectIn } from '../cni/invocation.ts';
import { isObject, memberOf, textsIn } from '../cni/json.ts';
import { putFile } from '../files/put-file.ts';
import { tryRead } from '../files/read-file.ts';
import type { WatchedAttachment } from './attachments.ts';

export interface WatchSettings {
  /** For networks whose list names no policy. `off` turns the watch off altogether. */
  readonly policy: Policy;
  /** What is done about a list that lost plugins and names no policy. */
  readonly lists: ListPolicy;
  /** Least time between two checks of an attachment on the timer, in milliseconds. */
  readonly everyMs: number;
  /** How long after its namespace has gone an attachment is deleted (`repair`) or reported (`observe`), in milliseconds; 0: never. */
  readonly leftoverMs: number;
}

/** Default settings. Runtimes call DEL within minutes of the end of a pod, if they call it at all. */
export const WATCH_SETTINGS: WatchSettings = {
  policy: 'observe',
  lists: 'tell',
  everyMs: 60_000,
  leftoverMs: 60 * 60_000,
};

/** An attachment that is not as its ADD made it. */
export type Drift = WatchState['drifted'][number];

/** The watch, as `GET /v1/state` shows it. */
export type WatchState = NonNullable<AnswerOf<'DaemonState'>['watch']>;

/** `observe`: damage is reported. `repair`: it is also repaired. `off`: the attachments of the network are not looked at. */
export const POLICIES = ['observe', 'repair', 'off'] as const;
export type Policy = (typeof POLICIES)[number];

/** `tell`: a list that lost or gained plugins is logged. `restore`: what it lost is put back, too. */
export const LIST_POLICIES = ['tell', 'restore'] as const;
export type ListPolicy = (typeof LIST_POLICIES)[number];

/** Which of the words a configuration has among its keys of ours: `{"catena": {"watch": "repair"}}`. */
export function wordIn<Word extends string>(
  source: string | undefined,
  key: string,
  words: readonly Word[],
): Word | undefined {
  const own = memberOf(objectIn(source) ?? {}, 'catena');
  const named = isObject(own) ? memberOf(own, key) : undefined;
  return words.find(one => one === named);
}

/** The networks that are configured: the text of each list, by its name. */
export type ConfiguredLists = ReadonlyMap<string, string>;

export function readLists(confDir: string): ConfiguredLists {
  // If it cannot be read now, what the attachments were made with has to be enough.
  const { networks } = attempt(() => listNetworks(confDir)) ?? { networks: [] };
  return new Map(networks.map(({ list }) => [list.name, list.source]));
}

/** The lists of a directory as a daemon last knew them; undefined if none did. */
export function recallLists(file: string, confDir: string): ConfiguredLists | undefined {
  const { confDir: dir, lists } = objectIn(tryRead(file)) ?? {};
  if (dir !== confDir || !isObject(lists)) return undefined;
  return new Map(Object.entries(textsIn(lists)));
}

/** Keeps them for the next daemon: what changes until then has no notification. @throws CniError 5 */
export function keepLists(file: string, confDir: string, lists: ConfiguredLists): void {
  putFile(file, JSON.stringify({ confDir, lists: Object.fromEntries(lists) }), { what: 'known lists' });
}

/** Names of the networks whose list came, went or has another text. */
export function changedLists(before: ConfiguredLists, now: ConfiguredLists): ReadonlySet<string> {
  const names = new Set([...before.keys(), ...now.keys()]);
  return new Set([...names].filter(name => before.get(name) !== now.get(name)));
}

/** Whether one of these lists is that of the attachment, or of the runner that made it. */
export function isOfList({ network, pod }: WatchedAttachment, lists: ReadonlySet<string>): boolean {
  return lists.has(network) || (pod !== undefined && lists.has(pod.id.network));
}

/**
 * The policy for an attachment, also for one made before: the list of today decides; without one, that of the ADD. For a network of the delegate runner that names
 * none, the list of the runner does.
 */
export function policyOf(
  { network, source, pod }: WatchedAttachment,
  lists: ConfiguredLists,
  fallback: Policy,
): Policy {
  const named = (name: string, atAdd: string | undefined) =>
    wordIn(lists.has(name) ? lists.get(name) : atAdd, 'watch', POLICIES);
  return named(network, source) ?? (pod && named(pod.id.network, pod.source)) ?? fallback;
}
