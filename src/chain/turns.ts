// Which operations of this process must not run at the same time?
//
// SPEC "Lifecycle & Ordering" forbids parallel operations for one container, and GC beside other operations of its network.
// Nothing more is excluded: a plugin of one network may hang for minutes, and other networks must not wait for it. An
// operation that waits holds nothing, so GC passes those that wait for their container, and no two can wait for each other.
import { AsyncLocalStorage } from 'node:async_hooks';
import { type ChainRuntime, cacheDirOf } from './runtime.ts';

type Place = Pick<ChainRuntime, 'cacheDir' | 'env' | 'onTurn'>;

/** What an operation works on. */
interface Subject {
  readonly network: string;
  readonly containerId: string;
}

/**
 * Does the work when nothing else runs for the container, and no GC of the network. Work for one container is done in order of
 * arrival; other containers do not wait. Work requested from within work for the container and network is part of it and does
 * not wait; GC deletes an attachment as soon as no other work for its container runs.
 *
 * This holds within this process only: processes that share a cache must coordinate by other means.
 */
export function inTurn<T>(
  { network, containerId }: Subject,
  place: Place,
  work: () => Promise<T>,
): Promise<T> {
  const parents = parentsIn(queueOf(place));
  if (parents.some(one => one.network === network && one.containerId === containerId)) return work();
  return waitFor({ network, containerId, parents }, place, work);
}

/** Does the work when nothing else runs on the network; later work on it waits. */
export function alone<T>(network: string, place: Place, work: () => Promise<T>): Promise<T> {
  const parents = parentsIn(queueOf(place));
  if (parents.some(one => one.network === network)) return work();
  return waitFor({ network, containerId: undefined, parents }, place, work);
}

/** What runs and what waits on one cache, in order of arrival. */
interface Queue {
  readonly running: Set<Turn>;
  readonly waiting: Turn[];
}

/** An operation; without container id, GC of the network. */
interface Turn {
  readonly queue: Queue;
  readonly network: string;
  readonly containerId: string | undefined;
  /** The operations that it is part of, innermost first. */
  readonly parents: readonly Turn[];
  readonly begin: () => void;
}

const queues = new Map<string, Queue>();
const current = new AsyncLocalStorage<Turn>();

function queueOf(place: Place): Queue {
  const dir = cacheDirOf(place);
  const queue = queues.get(dir) ?? { running: new Set(), waiting: [] };
  queues.set(dir, queue);
  return queue;
}

/** The running operations that the caller is part of. */
function parentsIn(queue: Queue): Turn[] {
  const turn = current.getStore();
  if (turn === undefined) return [];
  return [turn, ...turn.parents].filter(one => queue.running.has(one));
}

function waitFor<T>(
  of: Pick<Turn, 'network' | 'containerId' | 'parents'>,
  place: Place,
  work: () => Promise<T>,
): Promise<T> {
  const queue = queueOf(place);
  const asked = performance.now();
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const turn: Turn = {
    ...of,
    queue,
    begin() {
      queue.running.add(turn);
      place.onTurn?.(performance.now() - asked);
      void current
        .run(turn, work)
        .finally(() => end(turn))
        .then(resolve, reject);
    },
  };
  if (mayBegin(turn)) turn.begin();
  else queue.waiting.push(turn);
  return promise;
}

function end(turn: Turn): void {
  const { running, waiting } = turn.queue;
  running.delete(turn);
  for (const next of [...waiting]) {
    if (!mayBegin(next)) continue;
    waiting.splice(waiting.indexOf(next), 1);
    next.begin();
  }
}

function mayBegin(turn: Turn): boolean {
  const { network, containerId, parents, queue } = turn;
  const running = [...queue.running].filter(one => !parents.includes(one));
  if (containerId === undefined) return !running.some(one => one.network === network);
  if (running.some(one => one.containerId === containerId)) return false;
  // What GC deletes goes before what waits for GC.
  if (parents.some(one => isGcOf(one, network))) return true;
  const place = queue.waiting.indexOf(turn);
  const before = place < 0 ? queue.waiting : queue.waiting.slice(0, place);
  return (
    ![...running, ...before].some(one => isGcOf(one, network)) &&
    !before.some(one => one.containerId === containerId)
  );
}

function isGcOf({ network, containerId }: Turn, of: string): boolean {
  return containerId === undefined && network === of;
}
