// Which plugins has a list lost or gained, and how does it get back those that another program's version of it lacks?
//
// README.md says when, and what stays. A few times only: two programs that write one file for ever help no pod.
import { statSync } from 'node:fs';
import { listNetworks } from '../chain/config/load.ts';
import { podNamedIn } from '../cni/env.ts';
import { attempt, describeError } from '../cni/errors.ts';
import { objectIn } from '../cni/invocation.ts';
import { isObject, type JsonObject, memberOf } from '../cni/json.ts';
import { replaceFile } from '../files/put-file.ts';
import { tryRead } from '../files/read-file.ts';
import type { LogFields } from '../log.ts';
import type { WatchedAttachment } from './attachments.ts';
import { type ConfiguredLists, LIST_POLICIES, type ListPolicy, wordIn } from './settings.ts';

/** So many times within this time a list is restored; after that its writers have to agree. */
const MOST_RESTORED = 3;
const WITHIN_MS = 3_600_000;
/** A file that lacks its list for so long is not just being written. */
const GONE_MS = 10_000;

export class ListRestorer {
  readonly #confDir: string;
  /** Each list as it was when it was whole, also while its file is being written. */
  readonly #known: Map<string, { readonly source: string; readonly goneSince?: number }>;
  readonly #restored = new Map<string, number[]>();

  constructor(confDir: string, lists: ConfiguredLists) {
    this.#confDir = confDir;
    this.#known = new Map([...lists].map(([network, source]) => [network, { source }]));
  }

  /**
   * Puts lost plugins back where the list says so, as it was or as it is (`{"catena": {"lists": "restore"}}`), or the setting does.
   * @param tell called with why a list that should be restored is not
   * @returns whether a file was written
   */
  restore(
    now: ConfiguredLists,
    fallback: ListPolicy,
    tell: (problem: string, fields: LogFields) => void,
  ): boolean {
    let isAny = false;
    for (const [network, present] of now) {
      const { source = present } = this.#known.get(network) ?? {};
      const isRestored =
        (wordIn(present, 'lists', LIST_POLICIES) ?? wordIn(source, 'lists', LIST_POLICIES) ?? fallback) ===
        'restore';
      const whole = isRestored ? withLost(source, present) : undefined;
      const problem = typeof whole === 'string' ? this.#write(network, present, whole) : whole?.problem;
      if (problem !== undefined) tell(problem, { network });
      else if (whole !== undefined) isAny = true;
      this.#known.set(network, {
        source: typeof whole === 'string' && problem === undefined ? whole : present,
      });
    }
    this.#forgetGone(now);
    return isAny;
  }

  #forgetGone(now: ConfiguredLists): void {
    const at = performance.now();
    for (const [network, { source, goneSince = at }] of this.#known) {
      if (now.has(network)) continue;
      if (at - goneSince > GONE_MS) this.#known.delete(network);
      else this.#known.set(network, { source, goneSince });
    }
  }

  /** @returns why not */
  #write(network: string, present: string, whole: string): string | undefined {
    const now = performance.now();
    const times = (this.#restored.get(network) ?? []).filter(at => now - at < WITHIN_MS);
    if (times.length >= MOST_RESTORED)
      return `it was restored ${MOST_RESTORED} times within an hour, and written again each time`;
    try {
      const file = fileOfList(this.#confDir, network);
      // It may have been written again since; that is another change.
      if (file === undefined || tryRead(file) !== present) return undefined;
      const { mode, uid, gid } = statSync(file);
      replaceFile(file, whole, { sync: true, mode: mode & 0o777, owner: { uid, gid } });
    } catch (error) {
      return describeError(error);
    }
    this.#restored.set(network, [...times, now]);
    return undefined;
  }
}

/** The present list with the plugins that it has lost; undefined if it has lost none, or is not a list any longer. */
function withLost(before: string, now: string): string | { readonly problem: string } | undefined {
  const [old, present] = [objectIn(before), objectIn(now)];
  const [all, left] = [pluginsOf(old), pluginsOf(present)];
  if (present === undefined || all.length === 0 || left.length === 0) return undefined;
  const plugins = all.map(plugin => {
    const at = left.findIndex(one => one.type === plugin.type);
    return at < 0 ? { plugin, isLost: true } : { plugin: left.splice(at, 1)[0] ?? plugin, isLost: false };
  });
  if (!plugins.some(({ isLost }) => isLost)) return undefined;
  const [first] = pluginsOf(present);
  if (first?.type !== all[0]?.type)
    return {
      problem: `its first plugin is now "${String(first?.type)}", no longer "${String(all[0]?.type)}": another network`,
    };
  const restored = [...plugins.map(({ plugin }) => plugin), ...left];
  const own = memberOf(old ?? {}, 'catena');
  return `${JSON.stringify({ ...(own === undefined ? {} : { catena: own }), ...present, plugins: restored }, null, 2)}\n`;
}

function pluginsOf(list: JsonObject | undefined): JsonObject[] {
  return Array.isArray(list?.plugins) ? list.plugins.filter(isObject) : [];
}

/** Attachments that are named; the number of all follows. */
const NAMED = 20;

/** What is logged of each list that has other plugins now; a list that is gone has none. */
export function describeListChanges(
  confDir: string,
  before: ConfiguredLists,
  now: ConfiguredLists,
  attachments: Iterable<WatchedAttachment>,
): LogFields[] {
  const all = [...attachments];
  return [...before].flatMap(([network, source]) => {
    const [old, own] = [typesIn(source), typesIn(now.get(network))];
    const [lost, gained] = [without(old, own), without(own, old)];
    if (lost.length + gained.length === 0) return [];
    const others = all.filter(one => one.network === network && typesIn(one.source).join() !== own.join());
    return {
      network,
      lost: lost.join(', ') || undefined,
      gained: gained.join(', ') || undefined,
      ...fileOf(confDir, network),
      made_with_others: others.slice(0, NAMED).map(nameOf).join(', ') || undefined,
      made_with_others_count: others.length || undefined,
    };
  });
}

/** The file, and what the kernel tells of its last change. */
function fileOf(confDir: string, network: string): LogFields {
  const told = attempt(() => {
    const file = fileOfList(confDir, network);
    if (file === undefined) return undefined;
    const { mtime, ctime, uid } = statSync(file);
    return { file, written: mtime.toISOString(), placed: ctime.toISOString(), owner: uid };
  });
  // It may change again just now, which is another change.
  return told ?? {};
}

function fileOfList(confDir: string, network: string): string | undefined {
  return listNetworks(confDir).networks.find(({ list }) => list.name === network)?.file;
}

function typesIn(source: string | undefined): string[] {
  return pluginsOf(objectIn(source)).map(one => String(memberOf(one, 'type')));
}

/** Those of the first that the second lacks; a type may be in a list twice. */
function without(types: readonly string[], others: readonly string[]): string[] {
  const left = [...others];
  return types.filter(type => {
    const at = left.indexOf(type);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}

/** As a pod, if it is one. */
function nameOf(one: WatchedAttachment): string {
  const pod = podNamedIn(one);
  return pod ? `${pod.namespace}/${pod.name}` : one.containerId;
}
