// How does a daemon keep the routes between nodes as they should be?
import { join } from 'node:path';
import { describeError } from '../cni/errors.ts';
import type { LogFields, LogLevel } from '../log.ts';
import { findCidr } from '../net/cidr.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { Tables } from '../netlink/tables.ts';
import { holdFlock } from '../sys/flock.ts';
import { startTimer } from '../wait.ts';
import { type Concerned, openChanges } from './changes.ts';
import type { RouteLimits } from './claims.ts';
import { hostLinksOf } from './host.ts';
import type { ClusterNode, NodeEvents, NodeSource } from './node.ts';
import { type BetweenNote, readNote, removeNote, writeNote } from './note.ts';
import { planWays, type WaysPlan } from './plan.ts';
import type { BetweenSettings } from './settings.ts';
import { removeWays, settleWays } from './settle.ts';
import type { BetweenState } from './state.ts';
import { findTunnels } from './tunnels.ts';

/** What this needs of the daemon. */
export interface KeeperParts {
  /** Name of this node. */
  readonly own: string;
  readonly runDir: string;
  /** @throws CniError if the source cannot be opened */
  openSource(settings: BetweenSettings, events: NodeEvents): Promise<NodeSource>;
  log(level: LogLevel, message: string, fields?: LogFields): void;
}

/** Keeping that runs in the background. */
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
  let told = '';
  const complain = (problem: string): void => {
    if (problem !== told) parts.log('warn', 'cannot keep the routes to other nodes', { problem });
    told = problem;
  };
  const begin = (): void => {
    if (session || (settings.nodes === undefined && !isNoted(parts.runDir))) return;
    try {
      release ??= holdFlock(join(parts.runDir, 'between.lock'), { mode: 0o600, directoryMode: 0o700 });
      if (release === undefined) return;
      if (settings.nodes === undefined) remove();
      else session = openSession(parts, settings, complain);
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

/** A note that cannot be read is one, too. */
function isNoted(runDir: string): boolean {
  try {
    return readNote(runDir) !== undefined;
  } catch {
    return true;
  }
}

interface Session {
  readonly state: BetweenState;
  close(): void;
}

function openSession(
  parts: KeeperParts,
  settings: BetweenSettings,
  complain: (problem: string) => void,
): Session {
  const { own, runDir, log } = parts;
  const { ways, vni, port, clusterCidrs } = settings;
  const choices = { own, ways, vni, port };
  let limits: RouteLimits | undefined;
  let refused: readonly string[] = [];
  let nodes: readonly ClusterNode[] | undefined;
  let sourceProblem: string | undefined;
  let source: NodeSource | undefined;
  let isClosed = false;
  let concerned: Concerned = { links: new Set(), tunnels: new Set() };
  let plan: WaysPlan | undefined;
  let planText = '';
  let problems: readonly string[] = [];
  const changes = { planned: 0, repaired: 0 };
  let due: ReturnType<typeof setTimeout> | undefined;
  let dueAt = Number.POSITIVE_INFINITY;
  let lookedAt = Number.NEGATIVE_INFINITY;

  const lookAfter = (ms: number): void => {
    const at = Math.max(performance.now() + ms, lookedAt + SPACING_MS);
    if (isClosed || at >= dueAt) return;
    clearTimeout(due);
    dueAt = at;
    due = startTimer(look, at - performance.now());
    due.unref();
  };
  const look = (): void => {
    dueAt = Number.POSITIVE_INFINITY;
    lookedAt = performance.now();
    let found: readonly string[];
    try {
      found = settle();
    } catch (error) {
      found = [describeError(error)];
    }
    if (found.join() !== problems.join() && found.length)
      log('warn', 'not every node can be reached', { problem: found.join('; ') });
    problems = found;
    lookAfter(problems.length ? RETRY_MS : LOOK_EVERY_MS);
  };
  const settle = (): readonly string[] => {
    if (nodes === undefined) return sourceProblem === undefined ? [] : [sourceProblem];
    const links = hostLinksOf(new Tables());
    plan = planWays(nodes, links, { ...choices, limits });
    if (plan === undefined)
      return [
        `this node, "${own}", is not among the ${nodes.length} nodes: what was made before stays as it is`,
      ];
    const text = JSON.stringify(plan, (_, value) => (typeof value === 'bigint' ? String(value) : value));
    const isOther = text !== planText;
    planText = text;
    const settled = settleWays(plan);
    concerned = { links: new Set(links.map(({ index }) => index)), tunnels: readTunnels() };
    if (settled.changed.length) {
      changes[isOther ? 'planned' : 'repaired'] += 1;
      const what = isOther ? 'changed the routes to other nodes' : 'repaired the routes to other nodes';
      log(isOther ? 'info' : 'warn', what, summarize(settled.changed));
    }
    return [
      ...(sourceProblem === undefined ? [] : [sourceProblem]),
      ...refused,
      ...plan.problems,
      ...settled.problems,
    ];
  };

  const last = lastNote(runDir);
  nodes = last?.nodes;
  limits = last?.limits;
  const closeChanges = openChanges(() => concerned, {
    changed: () => lookAfter(DEBOUNCE_MS),
    interrupted: why => complain(why),
  });
  const open = async (): Promise<void> => {
    try {
      const opened = await parts.openSource(settings, {
        nodes(next, more = { never: [], problems: [] }) {
          sourceProblem = undefined;
          nodes = next;
          refused = more.problems;
          limits = { within: clusterCidrs?.flatMap(text => findCidr(text) ?? []), never: more.never };
          try {
            writeNote(runDir, { ...choices, limits, nodes: next });
          } catch (error) {
            // Without the note nothing of it could be removed later.
            complain(describeError(error));
            return;
          }
          lookAfter(0);
        },
        problem(text) {
          sourceProblem = text;
          complain(text);
          lookAfter(0);
        },
      });
      if (isClosed) opened.close();
      else source = opened;
    } catch (error) {
      complain(describeError(error));
      setTimeout(() => void (isClosed || open()), SEAT_EVERY_MS).unref();
    }
  };
  void open();
  lookAfter(0);
  return {
    get state() {
      const { tunnels = [] } = plan ?? {};
      return {
        own,
        nodes: Math.max((nodes?.length ?? 0) - 1, 0),
        routes: plan?.ways.length ?? 0,
        tunnels: Object.fromEntries(tunnels.map(({ name, mtu }) => [name, mtu])),
        problems,
        changes,
      };
    },
    close() {
      isClosed = true;
      clearTimeout(due);
      closeChanges();
      source?.close();
    },
  };
}

/** What another daemon was told: until the source answers, it counts. */
function lastNote(runDir: string): BetweenNote | undefined {
  try {
    return readNote(runDir);
  } catch {
    return undefined;
  }
}

function readTunnels(): Set<number> {
  return withRoutes(socket => new Set(findTunnels(socket).ours.map(({ index }) => index)));
}

function withRoutes<T>(work: (socket: NetlinkSocket) => T): T {
  const socket = new NetlinkSocket(NETLINK_ROUTE);
  try {
    return work(socket);
  } finally {
    socket.close();
  }
}

/** The first of them are enough to know what it was about. */
function summarize(changed: readonly string[]): LogFields {
  const shown = changed.slice(0, 5).join('; ');
  return { changes: changed.length, what: changed.length > 5 ? `${shown}; …` : shown };
}
