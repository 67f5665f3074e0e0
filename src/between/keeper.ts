// How does a daemon keep the routes between nodes as they should be, and when may others have changed them?
import { join } from 'node:path';
import { attempt, describeError } from '../cni/errors.ts';
import { fileExists } from '../files/read-file.ts';
import { changesOnly, type LogFields, type LogLevel } from '../log.ts';
import { findCidr } from '../net/ip.ts';
import type { Envelope } from '../netlink/codec.ts';
import { decodeNftDeletion, NFT_GROUPS, openAll, openMonitor } from '../netlink/monitor.ts';
import { linkMessage } from '../netlink/rtnl/link.ts';
import { ndmsg } from '../netlink/rtnl/neighbour.ts';
import { rtmsg } from '../netlink/rtnl/route.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE } from '../netlink/socket.ts';
import { askHere, Tables } from '../netlink/tables.ts';
import { holdFlock } from '../sys/flock.ts';
import { startTimer } from '../wait.ts';
import { applyWays, findTunnels, hostLinksOf, removeWays, SPARE_TABLE } from './apply.ts';
import type { ClusterNode, NodeEvents, NodeSource, RouteLimits } from './claims.ts';
import { noteFileOf, PROTOCOL, TUNNELS } from './names.ts';
import { readNote, removeNote, writeNote } from './note.ts';
import { type BetweenSettings, type BetweenState, planWays, type WaysPlan } from './plan.ts';

interface KeeperParts {
  /** Name of this node. */
  readonly own: string;
  readonly runDir: string;
  /** @throws CniError if the source cannot be opened */
  openSource(settings: BetweenSettings, events: NodeEvents): Promise<NodeSource>;
  log(level: LogLevel, message: string, fields?: LogFields): void;
}

export interface Keeping {
  /** Undefined while there are no routes to keep. */
  readonly state: BetweenState | undefined;
  /** Applies other settings from now on; without a source, everything is removed. */
  change(settings: BetweenSettings): void;
  /** Stops it. What was made stays: a daemon that ends must not take the pods' connections with it. */
  stop(): void;
}

/** Changes are seldom alone: those that follow within this time are looked at together. */
const DEBOUNCE_MS = 20;
/** Least time between two looks, however many changes there are. */
const SPACING_MS = 100;
/** What no notification told, and what the kernel refused, is looked at again after this time. */
const LOOK_EVERY_MS = 30_000;
const RETRY_MS = 5_000;
/** How often the lock of another daemon, and a source that could not be opened, are tried. */
const SEAT_EVERY_MS = 3_000;

/** Begins to keep. If another daemon does so already, it takes over when that one ends. */
export function startKeeping(parts: KeeperParts, first: BetweenSettings): Keeping {
  let settings = first;
  let release: (() => void) | undefined;
  let session: Session | undefined;
  const complain = changesOnly(problem =>
    parts.log('warn', 'cannot keep the routes to other nodes', { problem }),
  );
  const begin = (): void => {
    if (session) return;
    try {
      if (settings.nodes === undefined && !fileExists(noteFileOf(parts.runDir))) return;
      release ??= holdFlock(join(parts.runDir, 'between.lock'), { mode: 0o600, directoryMode: 0o700 });
      if (release === undefined) return;
      if (settings.nodes === undefined) remove();
      else session = new Session(parts, settings, complain);
    } catch (error) {
      complain(describeError(error));
    }
  };
  const remove = (): void => {
    const { problems } = removeWays();
    if (problems.length) {
      complain(problems.join('; '));
      return;
    }
    removeNote(parts.runDir);
    release?.();
    release = undefined;
    parts.log('info', 'removed the routes to other nodes');
  };
  begin();
  const timer = setInterval(begin, SEAT_EVERY_MS);
  timer.unref();
  const leave = (): void => {
    session?.close();
    session = undefined;
  };
  return {
    get state() {
      return session?.state;
    },
    change(next) {
      if (JSON.stringify(next) === JSON.stringify(settings)) return;
      settings = next;
      leave();
      begin();
    },
    stop() {
      clearInterval(timer);
      leave();
      release?.();
    },
  };
}

class Session {
  readonly #parts: KeeperParts;
  readonly #settings: BetweenSettings;
  readonly #complain: (problem: string | undefined) => void;
  readonly #closeChanges: () => void;
  readonly #changes = { planned: 0, repaired: 0 };
  #limits: RouteLimits | undefined;
  #refused: readonly string[] = [];
  #nodes: readonly ClusterNode[] | undefined;
  #sourceProblem: string | undefined;
  #source: NodeSource | undefined;
  #isClosed = false;
  #concerned: Concerned = { links: new Set(), tunnels: new Set() };
  #plan: WaysPlan | undefined;
  #planText = '';
  #problems: readonly string[] = [];
  #due: ReturnType<typeof setTimeout> | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(
    parts: KeeperParts,
    settings: BetweenSettings,
    complain: (problem: string | undefined) => void,
  ) {
    [this.#parts, this.#settings, this.#complain] = [parts, settings, complain];
    // What another daemon was told: until the source answers, it counts.
    const last = attempt(() => readNote(parts.runDir));
    this.#nodes = last?.nodes;
    this.#limits = last?.limits;
    const changed = () => this.#lookAfter(DEBOUNCE_MS);
    this.#closeChanges = openChanges(() => this.#concerned, changed, complain);
    void this.#open();
    this.#lookAfter(0);
  }

  get state(): BetweenState {
    const { tunnels = [], ways = [] } = this.#plan ?? {};
    return {
      own: this.#parts.own,
      nodes: Math.max((this.#nodes?.length ?? 0) - 1, 0),
      routes: ways.length,
      tunnels: Object.fromEntries(tunnels.map(({ name, mtu }) => [name, mtu])),
      problems: this.#problems,
      changes: this.#changes,
    };
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#due);
    this.#closeChanges();
    this.#source?.close();
  }

  async #open(): Promise<void> {
    try {
      const opened = await this.#parts.openSource(this.#settings, {
        nodes: (next, more = { never: [], problems: [] }) => this.#take(next, more),
        problem: text => {
          this.#sourceProblem = text;
          this.#complain(text);
          this.#lookAfter(0);
        },
      });
      if (this.#isClosed) opened.close();
      else this.#source = opened;
    } catch (error) {
      this.#complain(describeError(error));
      setTimeout(() => void (this.#isClosed || this.#open()), SEAT_EVERY_MS).unref();
    }
  }

  #take(nodes: readonly ClusterNode[], { never, problems }: NonNullable<Parameters<NodeEvents['nodes']>[1]>) {
    const within = this.#settings.clusterCidrs?.flatMap(text => findCidr(text) ?? []);
    [this.#sourceProblem, this.#refused, this.#nodes] = [undefined, problems, nodes];
    this.#limits = { within, never };
    this.#complain(undefined);
    try {
      writeNote(this.#parts.runDir, { ...this.#choices, limits: this.#limits, nodes });
    } catch (error) {
      // Without the note nothing of it could be removed later.
      this.#complain(describeError(error));
      return;
    }
    this.#lookAfter(0);
  }

  get #choices() {
    const { ways, vni, port } = this.#settings;
    return { own: this.#parts.own, ways, vni, port };
  }

  #lookAfter(ms: number): void {
    const at = Math.max(performance.now() + ms, this.#lookedAt + SPACING_MS);
    if (this.#isClosed || at >= this.#dueAt) return;
    clearTimeout(this.#due);
    this.#dueAt = at;
    this.#due = startTimer(() => this.#look(), at - performance.now());
    this.#due.unref();
  }

  #look(): void {
    this.#dueAt = Number.POSITIVE_INFINITY;
    this.#lookedAt = performance.now();
    let found: readonly string[];
    try {
      found = this.#apply();
    } catch (error) {
      found = [describeError(error)];
    }
    if (found.join() !== this.#problems.join() && found.length)
      this.#parts.log('warn', 'not every node can be reached', { problem: found.join('; ') });
    this.#problems = found;
    this.#lookAfter(found.length ? RETRY_MS : LOOK_EVERY_MS);
  }

  /** Makes the routes as they should be. @returns what stands in the way */
  #apply(): readonly string[] {
    const ofSource = this.#sourceProblem === undefined ? [] : [this.#sourceProblem];
    const nodes = this.#nodes;
    if (nodes === undefined) return ofSource;
    const links = hostLinksOf(new Tables());
    const plan = planWays(nodes, links, { ...this.#choices, limits: this.#limits });
    this.#plan = plan;
    if (plan === undefined) {
      const { own } = this.#parts;
      return [
        `this node, "${own}", is not among the ${nodes.length} nodes: what was made before stays as it is`,
      ];
    }
    const applied = applyWays(plan);
    const { ours } = askHere(NETLINK_ROUTE, findTunnels);
    this.#concerned = { links: indexesOf(links), tunnels: indexesOf(ours) };
    this.#note(plan, applied.changed);
    return [...ofSource, ...this.#refused, ...plan.problems, ...applied.problems];
  }

  /** Counts and logs what was changed: for another plan, or since something else had changed it. */
  #note(plan: WaysPlan, changed: readonly string[]): void {
    const text = JSON.stringify(plan, (_, value) => (typeof value === 'bigint' ? String(value) : value));
    const isOther = text !== this.#planText;
    this.#planText = text;
    if (changed.length === 0) return;
    this.#changes[isOther ? 'planned' : 'repaired'] += 1;
    const what = isOther ? 'changed the routes to other nodes' : 'repaired the routes to other nodes';
    this.#parts.log(isOther ? 'info' : 'warn', what, summarize(changed));
  }
}

function indexesOf(links: readonly { readonly index: number }[]): ReadonlySet<number> {
  return new Set(links.map(({ index }) => index));
}

/** The first of them are enough to know what it was about. */
function summarize(changed: readonly string[]): LogFields {
  const shown = changed.slice(0, 5).join('; ');
  return { changes: changed.length, what: changed.length > 5 ? `${shown}; …` : shown };
}

/** linux/rtnetlink.h: RTNLGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE */
const GROUPS = [1, 3, 5, 7, 9, 11];

/** linux/rtnetlink.h: RTM_NEW… and RTM_DEL… of devices, addresses, routes and neighbours */
const LINK = [16, 17];
const ADDRESS = [20, 21];
const ROUTE = [24, 25];
const NEIGHBOUR = [28, 29];

const NAMES: ReadonlySet<string | undefined> = new Set(Object.values(TUNNELS));

/** Devices whose changes matter: those that lead to other nodes, and the tunnels. */
interface Concerned {
  readonly links: ReadonlySet<number>;
  readonly tunnels: ReadonlySet<number>;
}

/**
 * Listens until it is closed.
 * @param concerned asked at each notification
 * @param changed something may have changed
 * @param interrupted notifications cannot be received at present
 * @returns a function that stops this
 * @throws SystemError if the sockets cannot be opened
 */
function openChanges(
  concerned: () => Concerned,
  changed: () => void,
  interrupted: (why: string) => void,
): () => void {
  const tell = (isIt: (message: Envelope) => boolean) => ({
    changed(messages: readonly Envelope[]) {
      let matters = true;
      try {
        matters = messages.some(isIt);
      } catch {
        // One that cannot be read may say anything.
      }
      if (matters) changed();
    },
    lost: changed,
    interrupted,
  });
  return openAll([
    () =>
      openMonitor(
        NETLINK_ROUTE,
        GROUPS,
        tell(message => matters(message, concerned())),
      ),
    () =>
      openMonitor(
        NETLINK_NETFILTER,
        NFT_GROUPS,
        tell(message => decodeNftDeletion(message, table => table === SPARE_TABLE.name) !== undefined),
      ),
  ]);
}

/** Whether a notification is about what we made, or about what a plan is made from. */
function matters({ type, body }: Envelope, { links, tunnels }: Concerned): boolean {
  if (ROUTE.includes(type)) return rtmsg.decode(body).protocol === PROTOCOL;
  if (NEIGHBOUR.includes(type)) return tunnels.has(ndmsg.decode(body).index);
  // Pods come and go with addresses on devices of theirs, which is as cheap to look at as to tell apart.
  if (ADDRESS.includes(type)) return true;
  if (!LINK.includes(type)) return false;
  const { header, attrs } = linkMessage.decode(body);
  return links.has(header.index) || tunnels.has(header.index) || NAMES.has(attrs.ifname);
}
